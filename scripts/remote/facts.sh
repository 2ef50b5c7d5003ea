# shellcheck shell=bash
# What is this node? Reads only. One line `rail=INTERFACE ADDRESS/PREFIX RDMA-DEVICE MTU` for each rail.
: "${SYSFS:?}"

main() {
  local device interface address
  emit hostname "$(hostname)"
  emit arch "$(uname -m)"
  emit docker "$(docker version --format '{{.Server.Version}}' 2>/dev/null || echo none)"
  emit memlock "$(ulimit -H -l)"
  for device in "$SYSFS"/class/infiniband/*; do
    [[ -e $device ]] || continue
    grep -q ACTIVE "$device/ports/1/state" || continue
    for interface in "$device"/device/net/*; do
      interface=${interface##*/}
      address=$(ip -4 -o addr show dev "$interface" scope global | awk 'NR == 1 {print $4}')
      emit rail "$interface ${address:-none} ${device##*/} $(<"/sys/class/net/$interface/mtu")"
    done
  done
}

main </dev/null
