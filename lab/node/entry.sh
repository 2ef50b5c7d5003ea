#!/usr/bin/env bash
# Makes writable what netplan (/sys) and the inner engine (the cgroups) need; then systemd takes over.
set -euo pipefail

mount -o remount,rw /sys
while read -r _ target type _; do
  if [[ $type == cgroup || $type == cgroup2 ]]; then
    mount -o remount,bind,rw "$target"
  fi
done </proc/mounts
exec /lib/systemd/systemd
