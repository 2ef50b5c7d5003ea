# shellcheck shell=bash
# Are this node's rails up, and do they reach the peers with full-size frames? Reads and pings only.
# RAILS: lines of "interface address/prefix subnet rdma-device-or-dash peer,peer,..."
# GID_INDEX: the entry of each RDMA device's GID table that NCCL is told to take; empty where it finds its own.
: "${NODE:?}" "${RAILS?}" "${MTU:?}" "${SYSFS:?}" "${GID_INDEX?}"

names_in() { find "$1/" -mindepth 1 -maxdepth 1 -printf '%f\n' 2>/dev/null | sort | paste -sd' '; }

check_rail() {
  local interface=$1 address=$2 subnet=$3 device=$4 peers=$5 peer pings=() ping failed=
  local net=/sys/class/net/$interface
  [[ -e $net ]] || fail "$NODE: no interface $interface; it has: $(names_in /sys/class/net)."
  # first: without a carrier the address is gone too
  [[ $(<"$net/operstate") == up ]] ||
    fail "$NODE: $interface is $(<"$net/operstate"): is the cable in, on both ends?"
  ip -4 -o addr show dev "$interface" | holds -F " $address " ||
    fail "$NODE: $interface does not have $address; it has: $(ip -4 -br addr show dev "$interface" | tr -s ' ')."
  [[ $(<"$net/mtu") == "$MTU" ]] ||
    fail "$NODE: $interface has MTU $(<"$net/mtu"), and network.mtu is $MTU."
  [[ $device == - ]] || check_device "$interface" "$device" "${address%/*}"
  check_routes "$interface" "$subnet"
  for peer in ${peers//,/ }; do
    reach "$interface" "${address%/*}" "$peer" &
    pings+=($!)
  done
  for ping in "${pings[@]}"; do
    wait "$ping" || failed=yes
  done
  [[ -z $failed ]] || exit 1
}

check_device() {
  local interface=$1 device=$2 address=$3 rdma=$SYSFS/class/infiniband/$2 right
  [[ -d $rdma ]] || fail "$NODE: no RDMA device $device; it has: $(names_in "$SYSFS/class/infiniband")."
  [[ -e $rdma/device/net/$interface ]] ||
    fail "$NODE: RDMA device $device belongs to $(names_in "$rdma/device/net"), not to $interface: correct rdmaDevice of that rail."
  grep -q ACTIVE "$rdma/ports/1/state" ||
    fail "$NODE: RDMA device $device is $(<"$rdma/ports/1/state"), not ACTIVE: is the cable in, on both ends?"
  [[ -n $GID_INDEX ]] || return 0
  right=$(gid_indices "$rdma/ports/1" "$address")
  [[ " $right " == *" $GID_INDEX "* ]] ||
    fail "$NODE: gidIndex $GID_INDEX is not the RoCE v2 entry of $address in the GID table of $device (that is ${right:-none}); entries move: better take gidIndex out, NCCL finds it."
}

# gid_indices PORT ADDRESS: the entries of a GID table that are RoCE v2 and of this address
gid_indices() {
  local port=$1 gid file index
  local -a found=()
  # shellcheck disable=SC2086
  gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${2//./ })
  for file in "$port"/gids/*; do
    index=${file##*/}
    # an empty entry has no type to read
    [[ $(cat "$file") != "$gid" || $(cat "$port/gid_attrs/types/$index" 2>/dev/null) != "RoCE v2" ]] || found+=("$index")
  done
  printf '%s' "${found[*]}"
}

# packets for a rail must have no choice
check_routes() {
  local interface=$1 subnet=$2 other
  other=$(ip -4 route show root "$subnet" | grep -vwF "dev $interface" | sed -n 1p || true)
  [[ -z $other ]] ||
    fail "$NODE: $subnet is the subnet of $interface, and there is a second route to it: ${other% }. Remove that one, or give the rail another subnet."
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
  local interface address subnet device peers
  while read -r interface address subnet device peers; do
    [[ -z $interface ]] || check_rail "$interface" "$address" "$subnet" "$device" "$peers" </dev/null
  done <<<"$RAILS"
  emit rails ok
}

main </dev/null
