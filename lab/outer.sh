#!/usr/bin/env bash
# First process of the outer engine, in a PID and a mount namespace of its own (lab/outer.py starts it): whatever
# ends it ends every process and mount of the lab with it. Arguments: run directory, data root, cgroup.
set -euo pipefail

# The engine neither reads nor writes the host's /etc; names are resolved by slirp4netns (10.0.2.3), which
# asks the resolvers of the host.
# shellcheck disable=SC2329
engine() {
  mkdir -p "$run/etc"
  mount -t tmpfs tmpfs "$run/etc"
  mkdir "$run/etc/upper" "$run/etc/work"
  mount -t overlay overlay -o "lowerdir=/etc,upperdir=$run/etc/upper,workdir=$run/etc/work" /etc
  rm -rf /etc/docker /etc/resolv.conf
  echo 'nameserver 10.0.2.3' >/etc/resolv.conf
  # Not systemd's driver: the host's systemd would take this namespace's process numbers for its own.
  exec dockerd --data-root "$data" --exec-root "$run/docker" --pidfile "$run/docker.pid" \
    --host "unix://$run/docker.sock" --group root --bridge=none --iptables=false --ip-forward=false \
    --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "/$cgroup"
}

main() {
  export run=$1 data=$2 cgroup=$3
  export -f engine

  # The host's /proc is still mounted here: it knows this process by the host's number.
  local pid slirp engine
  read -r pid _ </proc/self/stat
  mount -t proc proc /proc
  echo "$pid" >"$run/init.pid"

  mkdir -p /run/containerd "$run/containerd" "$data"
  mount --bind "$run/containerd" /run/containerd
  touch "$run/net"
  unshare --net="$run/net" ip link set lo up
  slirp4netns --configure --mtu=65520 --disable-host-loopback --netns-type=path "$run/net" tap0 &
  slirp=$!
  nsenter --net="$run/net" unshare --mount bash -euc engine &
  engine=$!

  trap 'kill -TERM "$engine"; wait "$engine"; exit' TERM
  wait -n "$slirp" "$engine"
}

main "$@"
exit
