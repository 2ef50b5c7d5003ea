# shellcheck shell=bash
# How is this node? Reads only.
# RAILS: its interfaces. RAY: the head's Ray container with its ADDRESS and the members to EXPECT; empty elsewhere.
# SERVER: the container that serves, on the head.
: "${NODE:?}" "${PROJECT:?}" "${STACK:?}" "${RAILS?}" "${RAY?}" "${ADDRESS?}" "${EXPECT?}" "${SERVER?}"

rail() {
  local interface=$1 net=/sys/class/net/$1 address
  if [[ ! -e $net ]]; then
    emit rail "$interface missing 0 0 none"
    return
  fi
  address=$(ip -4 -o addr show dev "$interface" scope global | awk 'NR == 1 {print $4}')
  # an interface without a link has no speed to read
  emit rail "$interface $(<"$net/operstate") $(<"$net/mtu") $(cat "$net/speed" 2>/dev/null || echo 0) ${address:-none}"
}

ray_members() {
  local out
  if out=$(timeout -k 5 20 docker exec "$RAY" python3 /spark/ray_nodes.py --address "$ADDRESS" --expect "$EXPECT" --timeout 5 2>&1); then
    grep '^nodes=' <<<"$out"
  else
    emit ray_fault "$(tail -n 1 <<<"$out")"
  fi
}

main() {
  local interface
  local -a rails
  read -ra rails <<<"$RAILS"
  emit memory_total_kib "$(memory_kib MemTotal)"
  emit memory_available_kib "$(memory_kib MemAvailable)"
  for interface in "${rails[@]}"; do rail "$interface"; done
  our_containers || fail "$NODE: Docker does not answer: $(docker version 2>&1 | tail -n 1)"
  [[ -z $RAY ]] || ray_members
  [[ -z $SERVER ]] ||
    emit last_line "$(docker logs --tail 1 "$SERVER" 2>&1 | tr '\r' '\n' | tail -n 1 | cut -c1-160 || true)"
}

main </dev/null
