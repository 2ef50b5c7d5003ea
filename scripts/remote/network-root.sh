# shellcheck shell=bash
# The part of network.sh that needs root: one netplan file of our own, changed under a dead-man timer.
# Until a change is confirmed it lives in /run alone, where netplan lets a file hide one of the same name in
# /etc and /lib: a boot forgets it, as the timer is forgotten then.
# RAILS: lines of "interface address/prefix ..."
: "${NODE:?}" "${PROJECT:?}" "${STACK:?}" "${RAILS?}" "${MTU:?}" "${TAKE_OVER:?}" "${DEADMAN:?}" "${DELAY:?}"
SELF=${SELF-}
# the address at which this SSH comes in
VIA=${VIA-}
# the SSH connection that asks for a change: another one must confirm it
BY=${BY-}
OWN=/etc/netplan/90-spark-vllm-$STACK.yaml
KEPT=.kept-by-spark-vllm-$STACK
DRAFTS=/run/netplan
STATE=/run/spark-vllm-network-$STACK
UNIT=spark-vllm-network-$STACK

rail_names() { awk '{print $1}' <<<"$RAILS"; }
address_of() { awk -v interface="$1" '$1 == interface {print $2}' <<<"$RAILS"; }
live_addresses() { ip -4 -o addr show dev "$1" 2>/dev/null | awk '{print $4}'; }
among() { grep -qxF -- "$1" <<<"$2"; }
# our own file says in its comments what it sets: "interface address/prefix"
own_rails() { sed -n 's/^# rail //p' "${1:-$OWN}" 2>/dev/null || true; }

draft_of() { echo "$DRAFTS/${1##*/}"; }

files() {
  local file
  for file in {/lib,/etc,/run}/netplan/*.yaml; do
    [[ ! -e $file || $file == "$OWN" ]] || printf '%s\n' "$file"
  done
}

# canonical FILE: its content as netplan itself reads it
canonical() {
  local root words status=0
  root=$(mktemp -d)
  install -D -m 600 "$1" "$root/etc/netplan/file.yaml"
  words=$(netplan get --root-dir "$root" all 2>/dev/null) || status=1
  rm -rf "$root"
  # netplan 1.x says nothing of a file that it cannot read, with status 0
  if [[ -n $words ]]; then echo "$words"; else status=1; fi
  return "$status"
}

# definitions FILE: lines of "id name mac driver"; `-` where a definition matches by none
definitions() {
  local plain
  plain=$(canonical "$1") || return 1
  awk '
    function out() { if (id != "") print id, name, mac, driver }
    { key = $1; sub(/:$/, "", key); gsub(/"/, "") }
    /^    [^ ]/ { out(); id = key; name = mac = driver = "-"; gsub(/"/, "", id) }
    /^      [^ ]/ { matching = (key == "match") }
    matching && /^        name:/ { name = $2 }
    matching && /^        macaddress:/ { mac = tolower($2) }
    matching && /^        driver:/ { driver = "any" }
    END { out() }' <<<"$plain"
}

# subjects FILE: "rail X" for each of our rails that it names, "other X" for what else it configures
subjects() {
  local found rail id name mac driver exact
  if ! found=$(definitions "$1"); then
    echo "other something that netplan cannot read from this file alone"
    found=
  fi
  while read -r id name mac driver; do
    [[ -n $id ]] || continue
    exact=
    while read -r rail; do
      if [[ $name$mac$driver == --- ]]; then
        [[ $id == "$rail" ]] || continue
      else
        # shellcheck disable=SC2053 # netplan's names are globs
        [[ $name == - || $rail == $name ]] || continue
        [[ $mac == - || $mac == "$(<"/sys/class/net/$rail/address")" ]] || continue
      fi
      echo "rail $rail"
      [[ $name == "$rail" || $id == "$rail" || $mac != - ]] && exact=yes
    done < <(rail_names)
    [[ -n $exact ]] || echo "other $id"
  done <<<"$found"
  while read -r rail; do
    ! sed 's/#.*//' "$1" | holds -wF -- "$rail" || echo "rail $rail"
  done < <(rail_names)
}

# who manages an interface keeps it
renderer_of() {
  local global
  if nm_manages "$1"; then
    echo NetworkManager
  elif networkctl list --no-legend "$1" 2>/dev/null | holds -v unmanaged; then
    echo networkd
  else
    global=$(netplan get renderer 2>/dev/null) || global=null
    [[ $global == NetworkManager ]] && echo NetworkManager || echo networkd
  fi
}

nm_manages() {
  systemctl -q is-active NetworkManager 2>/dev/null &&
    nmcli -t -f DEVICE,STATE device 2>/dev/null | grep -F "$1:" | holds -vE 'unmanaged|externally'
}

# whether netplan's files already say of a rail what is wanted, whoever wrote them
configured() {
  netplan get "ethernets.$1.addresses" 2>/dev/null | holds -xF -- "- \"$(address_of "$1")\"" &&
    [[ $(netplan get "ethernets.$1.mtu" 2>/dev/null) == "$MTU" ]]
}

# plan INTERFACE...: sets `rails` (what our file will hold) and `aside` (files to keep aside), or refuses
plan() {
  local file rail about others mine grown=yes
  rails=$(printf '%s\n' "$@")
  while read -r rail _; do
    [[ -z $rail ]] || ! among "$rail" "$(rail_names)" || among "$rail" "$rails" || rails+=$'\n'$rail
  done < <(own_rails)
  while [[ -n $grown ]]; do
    grown=
    while read -r file; do
      ! among "$file" "$aside" || continue
      about=$(subjects "$file" | sort -u)
      mine=$(sed -n 's/^rail //p' <<<"$about")
      others=$(sed -n 's/^other //p' <<<"$about" | paste -sd, | sed 's/,/, /g')
      grep -qxFf <(printf '%s\n' "$mine" | grep .) <<<"$rails" || continue
      refuse "$file" "$(paste -sd, <<<"$mine")" "$others"
      aside+=${aside:+$'\n'}$file
      while read -r rail; do
        among "$rail" "$rails" || rails+=$'\n'$rail
      done <<<"$mine"
      grown=yes
    done < <(files)
  done
}

# refuse FILE RAILS OTHERS: unless the file may be taken over
refuse() {
  local file=$1 mine=$2 others=$3 rail want=
  for rail in ${mine//,/ }; do
    want+="${want:+, }$rail $(address_of "$rail")"
  done
  if [[ -n $others ]]; then
    fail "$NODE: $file configures ${mine//,/, } and also $others, so it cannot be taken over whole: take ${mine//,/, } out of it ($want, MTU $MTU will be set in a file of our own), and \`up\` again."
  fi
  [[ $file != "$DRAFTS"/* ]] ||
    fail "$NODE: $file configures ${mine//,/, } and is made anew at each boot: let what makes it leave $want alone, and \`up\` again."
  [[ $TAKE_OVER == true ]] ||
    fail "$NODE: $file already configures ${mine//,/, } and is not ours: set $want and MTU $MTU there yourself, or set network.takeOver: true, which keeps it aside as ${file##*/}$KEPT for destroy to restore."
}

# content RENDERER: our file; a renderer for all, if one is given
content() {
  local rail renderer
  printf '# Made by Pulumi: project %s, stack %s. Change its settings, not this file.\n' "$PROJECT" "$STACK"
  while read -r rail; do
    printf '# rail %s %s\n' "$rail" "$(address_of "$rail")"
  done <<<"$rails"
  printf 'network:\n  version: 2\n'
  [[ -z $1 ]] || printf '  renderer: %s\n' "$1"
  printf '  ethernets:\n'
  while read -r rail; do
    renderer=$(renderer_of "$rail")
    printf '    %s:\n' "$rail"
    printf '      %s\n' "renderer: $renderer" "addresses: [$(address_of "$rail")$(way_in "$rail")]" "mtu: $MTU" \
      'dhcp4: false' 'dhcp6: false' 'accept-ra: false' 'link-local: [ipv6]' 'optional: true'
    # the highest that there is: other profiles for the interface may stay, and none wins at boot
    [[ $renderer != NetworkManager ]] ||
      printf '      networkmanager: {passthrough: {connection.autoconnect-priority: "999"}}\n'
  done <<<"$rails"
}

# way_in INTERFACE: the link-local address that carries this SSH; NetworkManager's and the kernel's differ
way_in() {
  if [[ $VIA == fe80:* ]] && ip -6 -o addr show dev "$1" | holds -F " $VIA/64 "; then
    printf ', "%s/64"' "$VIA"
  fi
}

# what a file said for all interfaces must not go with it
global_renderer() {
  local file
  while read -r file; do
    [[ -z $file ]] || canonical "$file" | sed -n 's/^  renderer: //p'
  done <<<"$aside" | tail -n 1
}

# rehearse TEXT: does netplan take the whole of it?
rehearse() {
  local tree folder file words
  tree=$(mktemp -d)
  for folder in /lib /etc /run; do
    [[ ! -d $folder/netplan ]] || install -d "$tree$folder/netplan"
  done
  while read -r file; do
    among "$file" "$aside" || cp -p "$file" "$tree$file"
  done < <(files)
  install -m 600 /dev/stdin "$tree$OWN" <<<"$1"
  if ! words=$(netplan generate --root-dir "$tree" 2>&1); then
    rm -rf "$tree"
    fail "$NODE: netplan refuses the change, and nothing was changed: $(grep -v WARNING <<<"$words" | grep . | tail -n 3)"
  fi
  rm -rf "$tree"
}

apply_netplan() {
  local words
  words=$(timeout 60 netplan apply 2>&1) || {
    say "$NODE: netplan apply: $(tail -n 3 <<<"$words")"
    return 1
  }
}

arm() {
  local rail
  rm -rf "$STATE"
  install -d -m 755 "$STATE"
  install -m 700 /dev/stdin "$STATE/network.sh" <<<"$SELF"
  printf '%s\n' "$aside" >"$STATE/aside"
  printf '%s\n' "$BY" >"$STATE/by"
  while read -r rail; do
    # shellcheck disable=SC2046 # words of one line
    echo "$rail" "$(<"/sys/class/net/$rail/mtu")" $(live_addresses "$rail")
  done <<<"$rails" >"$STATE/live"
  date -u +%FT%TZ >"$STATE/pending"
  disarm
  systemd-run --quiet --collect --on-active="$DEADMAN" --timer-property=AccuracySec=1s \
    --unit="$UNIT-rollback" /usr/bin/bash "$STATE/network.sh" rollback
}

disarm() {
  systemctl stop "$UNIT-rollback.timer" 2>/dev/null || true
  systemctl reset-failed "$UNIT-rollback.service" 2>/dev/null || true
}

# change INTERFACE...: makes them, and what our file already holds, as the settings say; confirmed by `settle`
change() {
  local rails aside='' text='' missing='' rail
  [[ ! -e $STATE/pending ]] || settle
  for rail in "$@"; do
    configured "$rail" || missing+="$rail "
  done
  rails=$(printf '%s\n' "$@")
  if [[ -n $missing ]]; then
    # shellcheck disable=SC2086 # one word for each interface
    plan $missing
    text=$(content "$(global_renderer)")
    rehearse "$text"
  fi
  arm
  trap 'trap - EXIT; rollback' EXIT
  if [[ -n $text ]]; then
    write
    say "$NODE: applying $OWN${aside:+, ${aside//$'\n'/ and } kept aside}; undone in $DEADMAN s unless confirmed"
  else
    say "$NODE: netplan's files are right, and are applied again"
  fi
  apply_netplan || fail "$NODE: netplan apply failed, and what was there before is put back."
  activate
  trap - EXIT
}

# write: puts `text` before our old file, and nothing before those kept aside
write() {
  local rail address file
  while read -r rail address; do
    [[ -z $rail ]] || among "$rail" "$rails" || ip addr del "$address" dev "$rail" 2>/dev/null || true
  done < <(own_rails)
  install -d "$DRAFTS"
  while read -r file; do
    [[ -z $file ]] || install -m 600 /dev/stdin "$(draft_of "$file")" <<<'network: {version: 2}'
  done <<<"$aside"
  install -m 600 /dev/stdin "$(draft_of "$OWN")" <<<"$text"
}

# netplan's profile must be the one that NetworkManager uses
activate() {
  local rail
  while read -r rail; do
    ! nm_manages "$rail" || timeout 30 nmcli connection up "netplan-$rail" >/dev/null 2>&1 || true
  done <<<"$rails"
  await
}

await() {
  local rail wrong began=$SECONDS
  while ((SECONDS - began < 30)); do
    wrong=
    while read -r rail; do
      among "$(address_of "$rail")" "$(live_addresses "$rail")" && [[ $(<"/sys/class/net/$rail/mtu") == "$MTU" ]] ||
        wrong+="$rail has $(live_addresses "$rail" | paste -sd' ') and MTU $(<"/sys/class/net/$rail/mtu"); "
    done <<<"$rails"
    [[ -n $wrong ]] || return 0
    every 5 "$NODE: waiting for ${rails//$'\n'/ and }"
    sleep 0.5
  done
  fail "$NODE: $OWN was applied, but after 30 s ${wrong%; }. What was there before is put back; look at \`journalctl -u systemd-networkd -u NetworkManager\` there."
}

drop_drafts() {
  local file
  while read -r file; do
    [[ -z $file ]] || rm -f "$(draft_of "$file")"
  done < <(cat "$STATE/aside" && echo "$OWN")
}

rollback() {
  local rail mtu addresses address
  exec 9>"$STATE/lock"
  flock 9
  [[ -e $STATE/pending ]] || return 0
  say "$NODE: putting back what was there before"
  drop_drafts
  apply_netplan || true
  # what was live may stand in no file
  sleep 1
  while read -r rail mtu addresses; do
    for address in $(live_addresses "$rail"); do
      [[ " $addresses " == *" $address "* ]] || ip addr del "$address" dev "$rail" || true
    done
    for address in $addresses; do
      among "$address" "$(live_addresses "$rail")" || ip addr add "$address" dev "$rail" || true
    done
    ip link set "$rail" mtu "$mtu" || true
  done <"$STATE/live"
  mv "$STATE/pending" "$STATE/rolled-back"
  disarm
}

# settle: what is in /run moves to /etc; netplan, which has applied it, reads the same from there
settle() {
  local file draft
  exec 9>"$STATE/lock"
  flock 9
  [[ -e $STATE/pending ]] || fail "$NODE: the change of the network was rolled back just now, before it was confirmed."
  disarm
  draft=$(draft_of "$OWN")
  [[ ! -e $draft ]] || install -m 600 "$draft" "$OWN"
  while read -r file; do
    [[ ! -f $file ]] || mv --backup=numbered "$file" "$file$KEPT"
  done <"$STATE/aside"
  drop_drafts
  rm -rf "$STATE"
  exec 9>&-
}

kept_files() {
  local file
  for file in {/lib,/etc,/run}/netplan/*"$KEPT"; do
    [[ ! -e $file ]] || printf '%s\n' "$file"
  done
}

# a worker's answer must be on its way before the address that carries it goes
remove_soon() {
  install -d -m 755 "$STATE"
  install -m 700 /dev/stdin "$STATE/network.sh" <<<"$SELF"
  systemctl reset-failed "$UNIT-remove.service" 2>/dev/null || true
  systemd-run --quiet --collect --on-active="$DELAY" --timer-property=AccuracySec=1s \
    --unit="$UNIT-remove" /usr/bin/bash "$STATE/network.sh" remove-now
  say "$NODE: $OWN goes in $DELAY s$(kept_files | sed 's/^/; back comes /' | paste -sd' ')"
}

remove_now() {
  local rails rail address file
  [[ ! -e $STATE/pending ]] || settle
  rails=$(own_rails)
  rm -f "$OWN"
  while read -r file; do
    mv "$file" "${file%"$KEPT"}"
  done < <(kept_files)
  while read -r rail address; do
    [[ -z $rail ]] || ip addr del "$address" dev "$rail" 2>/dev/null || true
  done <<<"$rails"
  apply_netplan || true
  rm -rf "$STATE"
}

main() {
  local verb=$1
  shift
  case $verb in
    change) change "$@" ;;
    settle) settle ;;
    rollback) rollback ;;
    remove) remove_soon ;;
    remove-now) remove_now ;;
    *) fail "network-root: change, settle, rollback, remove or remove-now" ;;
  esac
}

main "$@" </dev/null
