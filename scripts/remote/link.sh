# shellcheck shell=bash
# Are this node's rails up, and do they reach the peers with full-size frames? Reads and pings only.
# RAILS: lines of "interface address/prefix rdma-device-or-dash peer,peer,..."
: "${NODE:?}" "${RAILS?}" "${MTU:?}" "${SYSFS:?}"

check_rail() {
  local interface=$1 address=$2 device=$3 peers=$4 peer
  local net=/sys/class/net/$interface
  [[ -e $net ]] ||
    fail "$NODE: no interface $interface; it has: $(find /sys/class/net -mindepth 1 -printf '%f ' | sort)."
  ip -4 -o addr show dev "$interface" | grep -qF " $address " ||
    fail "$NODE: $interface does not have $address; it has: $(ip -4 -br addr show dev "$interface" | tr -s ' ')."
  [[ $(<"$net/mtu") == "$MTU" ]] ||
    fail "$NODE: $interface has MTU $(<"$net/mtu"), and network.mtu is $MTU."
  [[ $(<"$net/operstate") == up ]] ||
    fail "$NODE: $interface is $(<"$net/operstate"): is the cable in, on both ends?"
  if [[ $device != - ]]; then
    local rdma=$SYSFS/class/infiniband/$device
    [[ -d $rdma ]] ||
      fail "$NODE: no RDMA device $device; it has: $(find "$SYSFS/class/infiniband/" -mindepth 1 -maxdepth 1 -printf '%f ' 2>/dev/null | sort)."
    [[ -e $rdma/device/net/$interface ]] ||
      fail "$NODE: RDMA device $device belongs to $(ls "$rdma/device/net"), not to $interface."
    grep -q ACTIVE "$rdma/ports/1/state" ||
      fail "$NODE: RDMA device $device is $(<"$rdma/ports/1/state"), not ACTIVE: is the cable in, on both ends?"
  fi
  for peer in ${peers//,/ }; do
    reach "$interface" "${address%/*}" "$peer"
  done
}

reach() {
  local interface=$1 source=$2 peer=$3
  local payload=$((MTU - 28))
  if ! ping -q -I "$source" -M "do" -s "$payload" -c 3 -i 0.2 -W 1 "$peer" >/dev/null 2>&1; then
    if ping -q -I "$source" -c 2 -i 0.2 -W 1 "$peer" >/dev/null 2>&1; then
      fail "$NODE: $peer answers on $interface, but not to frames of $MTU bytes: set the same MTU on both ends."
    fi
    fail "$NODE: $peer does not answer on $interface ($source): is the cable in, and does the peer have that address?"
  fi
  say "$NODE: $peer reached on $interface with frames of $MTU bytes"
}

main() {
  local interface address device peers
  while read -r interface address device peers; do
    [[ -z $interface ]] || check_rail "$interface" "$address" "$device" "$peers" </dev/null
  done <<<"$RAILS"
  emit rails ok
}

main </dev/null
