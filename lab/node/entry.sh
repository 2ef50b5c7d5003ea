#!/usr/bin/env bash
# Makes writable what netplan (/sys) and, on cgroup v1, the inner engine need; then systemd takes over.
set -euo pipefail

mount -o remount,rw /sys
while read -r _ target type _; do
  if [[ $type == cgroup ]]; then
    mount -o remount,bind,rw "$target"
  fi
done </proc/mounts
exec /lib/systemd/systemd
