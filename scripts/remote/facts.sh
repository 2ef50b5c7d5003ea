# shellcheck shell=bash
# What is this node? Reads only; where NEIGHBOURS is yes it asks who else is on its cables.
# Prints `rail=INTERFACE ADDRESS/PREFIX RDMA-DEVICE MTU GB/S` for each rail, `neighbour=INTERFACE fe80::...` for each
# other machine that answers there.
: "${SYSFS:?}" "${NEIGHBOURS:?}"

rail() {
  local interface=$1 device=$2 address rate=$SYSFS/class/infiniband/$2/ports/1/rate
  address=$(ip -4 -o addr show dev "$interface" scope global | awk 'NR == 1 {print $4}')
  rate=$(cut -d' ' -f1 "$rate" 2>/dev/null) || rate="?"
  emit rail "$interface ${address:-none} $device $(<"/sys/class/net/$interface/mtu") $rate"
}

neighbours() {
  local interface=$1 own
  own=$(ip -6 -o addr show dev "$interface" scope link | awk 'NR == 1 {sub(/\/.*/, "", $4); print $4}')
  { ping -n -c 2 -w 3 "ff02::1%$interface" 2>/dev/null || true; } |
    sed -n 's/^.* from \(fe80::[0-9a-f:]*\)%.*/\1/p' | sort -u | while read -r address; do
    [[ $address == "$own" ]] || emit neighbour "$interface $address"
  done
}

main() {
  local device interface
  emit hostname "$(hostname)"
  emit arch "$(uname -m)"
  emit kernel "$(uname -r)"
  emit memory_kib "$(memory_kib MemTotal)"
  emit disk "$(df -B1 --output=avail / | tail -n 1 | tr -d ' ')"
  emit gpu "$(gpu name)"
  emit driver "$(gpu driver_version)"
  emit docker "$(docker version --format '{{.Server.Version}}' 2>/dev/null || echo none)"
  if docker info >/dev/null 2>&1; then
    emit image_store "$(image_store)"
    if has_nvidia_runtime; then emit runtime nvidia; else emit runtime none; fi
  fi
  for device in "$SYSFS"/class/infiniband/*; do
    [[ -e $device ]] || continue
    grep -q ACTIVE "$device/ports/1/state" || continue
    for interface in "$device"/device/net/*; do
      interface=${interface##*/}
      rail "$interface" "${device##*/}"
      [[ $NEIGHBOURS != yes ]] || neighbours "$interface"
    done
  done
}

main </dev/null
