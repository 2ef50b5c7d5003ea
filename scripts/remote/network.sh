# shellcheck shell=bash
# This node's rails, as the settings say. What is right already is left alone and needs no root.
# RAILS: lines of "interface address/prefix interface-of-the-jump-host-or-dash"
# STRANDED: addresses by which workers are reached through this node, and that its new rails would not reach
# ROOT: network-root.sh with its inputs
: "${NODE:?}" "${STACK:?}" "${RAILS?}" "${MTU:?}" "${MANAGE:?}" "${REMOVE:?}" "${STRANDED?}" "${ROOT:?}"
STATE=/run/spark-vllm-network-$STACK
UNIT=spark-vllm-network-$STACK
HEARD_SECONDS=${HEARD_SECONDS:-15}

mtu_of() { echo "$(<"/sys/class/net/$1/mtu")"; }
has_address() { ip -4 -o addr show dev "$1" | holds -F " $2 "; }
addresses_of() { ip -4 -o addr show dev "$1" | awk '{print $4}' | paste -sd' '; }

# wrong: the rails whose address or MTU is not as set, one a line
wrong() {
  local interface address
  while read -r interface address _; do
    [[ -n $interface ]] || continue
    [[ -e /sys/class/net/$interface ]] ||
      fail "$NODE: no interface $interface; it has: $(find /sys/class/net -mindepth 1 -printf '%f\n' | sort | paste -sd' ')."
    has_address "$interface" "$address" && [[ $(mtu_of "$interface") == "$MTU" ]] || echo "$interface"
  done <<<"$RAILS"
}

rail() { awk -v interface="$1" -v column="$2" '$1 == interface {print $column}' <<<"$RAILS"; }

# persistent INTERFACE ADDRESS: false only where it can be seen without root that a reboot loses it
persistent() {
  local interface=$1 address=$2 file profile
  ! ip -4 -o addr show dev "$interface" | grep -F " $address " | holds -w dynamic || return 1
  profile=$(nmcli -g GENERAL.CON-UUID device show "$interface" 2>/dev/null) || profile=
  if [[ -n $profile ]]; then
    nmcli -g ipv4.addresses connection show "$profile" 2>/dev/null | holds -F "$address"
    return
  fi
  for file in /etc/systemd/network/*.network /run/systemd/network/*.network; do
    [[ -e $file ]] || continue
    [[ -r $file ]] || return 0
    ! grep -qxF "Address=$address" "$file" || return 0
  done
  return 1
}

report() {
  local interface address
  while read -r interface address _; do
    if [[ -n $interface ]] && ! persistent "$interface" "$address"; then
      say "warning: $NODE: $interface has $address, but no configuration that can be seen says so: a reboot may lose it. Put it into netplan, or take the address off and \`up\` again."
    fi
  done <<<"$RAILS"
  emit changed none
}

refuse_what_cuts() {
  local interface peer server have
  server=$(way_in)
  while read -r interface; do
    [[ $(cat "/sys/class/net/$interface/carrier" 2>/dev/null) != 0 ]] ||
      fail "$NODE: $interface has no carrier: is the cable in, on both ends?"
    have=$(rail "$interface" 2)
    if [[ $server == *.* && $server != "${have%/*}" ]] && has_address_of "$interface" "$server"; then
      fail "$NODE: SSH comes in by $server on $interface, so giving that interface $have would cut it. Let ssh.host of $NODE be $(other_ways "$interface"), and \`up\` again; the new address can be ssh.host afterwards."
    fi
    for peer in $STRANDED; do
      if ip -4 -o route get "$peer" 2>/dev/null | holds -F " dev $interface "; then
        fail "$NODE: a worker is reached by $peer over $interface, so giving that interface $have would cut it off. Let that worker's ssh.host be its link-local address (fe80::...%$interface; docs/network.md says how to find it), and \`up\` again."
      fi
    done
  done <<<"$1"
}

has_address_of() { ip -o addr show dev "$1" | holds -F " $2/"; }

# the addresses that a change of an interface leaves alone
other_ways() {
  local interface address hop local_address ways=
  while read -r interface address hop; do
    [[ -n $interface ]] || continue
    if [[ $interface != "$1" && ${address%/*} != "$(way_in)" ]] && has_address "$interface" "$address"; then
      ways+="${address%/*} or "
    fi
    local_address=$(ip -6 -o addr show dev "$interface" scope link | awk 'NR == 1 {sub(/\/.*/, "", $4); print $4}')
    if [[ $interface == "$1" && -n $local_address && $hop != - ]]; then
      ways+="$local_address%$hop or "
    fi
  done <<<"$RAILS"
  ways=${ways% or }
  echo "${ways:-an address of another interface}"
}

require_root() {
  ! sudo -n /usr/bin/bash -c true 2>/dev/null || return 0
  fail "$NODE: $1 needs root, and sudo asks $(id -un) for a password. Put the line \`$(id -un) ALL=(root) NOPASSWD: /usr/bin/bash\` into /etc/sudoers.d/spark-vllm with \`sudo visudo -f /etc/sudoers.d/spark-vllm\`, or do it yourself and set network.manage: false."
}

# the address at which this SSH comes in, without its interface
way_in() { awk '{sub(/%.*/, "", $3); print $3}' <<<"${SSH_CONNECTION-}"; }
as_root() {
  printf 'SELF=%q\nVIA=%q\nBY=%q\n%s' "$ROOT" "$(way_in)" "${SSH_CONNECTION-}" "$ROOT" | sudo -n /usr/bin/bash -s -- "$@"
}

# heard: has the other end of this SSH connection taken what was said since the change?
heard() {
  local their_port our_port queue began=$SECONDS
  [[ -n ${SSH_CONNECTION-} ]] || return 0
  read -r _ their_port _ our_port <<<"$SSH_CONNECTION"
  while ((SECONDS - began < HEARD_SECONDS)); do
    say "$NODE: changed; is this heard?"
    sleep 1
    queue=$(ss -Htn "sport = :$our_port and dport = :$their_port" | awk 'NR == 1 {print $3}')
    [[ $queue != 0 ]] || return 0
  done
  return 1
}

change() {
  local interfaces=$1 words
  words=${interfaces//$'\n'/ }
  command -v netplan >/dev/null ||
    fail "$NODE: $words is not as set, and there is no netplan to change it: set it yourself (network.manage: false only checks)."
  refuse_what_cuts "$interfaces"
  require_root "changing $words"
  # shellcheck disable=SC2086 # one word for each interface
  as_root change $words
  if ! heard; then
    as_root rollback
    fail "$NODE: the change of $words cut the way by which it was asked for, so it was undone. Let ssh.host of $NODE be $(other_ways "${interfaces%%$'\n'*}"), or change less at once."
  fi
  emit changed "$words"
  emit at "$(date -u +%FT%TZ)"
}

apply() {
  local interfaces
  if [[ $MANAGE != true ]]; then
    emit changed none
    return
  fi
  # a destroy just before leaves a few seconds
  while systemctl -q is-active "$UNIT-remove.timer" "$UNIT-remove.service" 2>/dev/null; do
    every 5 "$NODE: waiting until the earlier removal of the network is done"
    sleep 1
  done
  interfaces=$(wrong)
  if [[ -z $interfaces ]]; then report; else change "$interfaces"; fi
}

confirm() {
  local interfaces since
  if [[ -e $STATE/pending ]]; then
    [[ -z ${SSH_CONNECTION-} || $(cat "$STATE/by") != "$SSH_CONNECTION" ]] ||
      fail "$NODE: the change is confirmed over a new SSH connection only, and this one made it; a change that nothing confirms is undone. \`up\` again."
    as_root settle
    say "$NODE: confirmed"
    emit confirmed yes
    return
  fi
  interfaces=$(wrong)
  if [[ -n $interfaces ]]; then
    since=$(cat "$STATE/rolled-back" 2>/dev/null) || since=
    say "$NODE: the change of ${interfaces//$'\n'/ } ${since:+of $since }was undone, since nothing had confirmed it. Making it again."
    change "$interfaces"
    as_root settle
  fi
  emit confirmed yes
}

remove() {
  local file found=
  for file in /etc/netplan/90-spark-vllm-"$STACK".yaml {/lib,/etc,/run}/netplan/*".kept-by-spark-vllm-$STACK"; do
    [[ ! -e $file ]] || found=yes
  done
  if [[ $REMOVE != true || $MANAGE != true || -z $found ]]; then
    emit removed none
    return
  fi
  require_root "removing the addresses"
  as_root remove
  emit removed yes
}

main() {
  case ${1-} in
    apply) apply ;;
    confirm) confirm ;;
    remove) remove ;;
    *) fail "network: apply, confirm or remove" ;;
  esac
}

main "$@" </dev/null
