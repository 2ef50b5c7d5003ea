# shellcheck shell=bash
# From the head to a worker: the door that fabric-peer.sh opened, and a measured way through it.
: "${KEY:?}" "${PEER:?}" "${PEER_ADDRESS:?}" "${PEER_HOST_KEY:?}" "${PEER_USER:?}"

# peer VERB [ARGUMENT...]: ask the receiver
peer() {
  ssh -F none -p "${PEER_PORT:-22}" -i "$HOME/.ssh/$KEY" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=10 \
    -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null \
    -o HostKeyAlgorithms=ssh-ed25519 -o HostKeyAlias="$PEER" -o LogLevel=ERROR -o Compression=no \
    -o "KnownHostsCommand=/bin/echo $PEER $PEER_HOST_KEY" -o ServerAliveInterval=15 \
    "$PEER_USER@$PEER_ADDRESS" "$@"
}

# pour WHAT BYTES: pass stdin on, and say every few seconds how much of about BYTES has passed
pour() {
  local what=$1 bytes=$2 report
  report=$(mktemp)
  dd bs=4M iflag=fullblock 2>"$report" <&0 &
  local dd=$! asked=$SECONDS sent status=0
  while kill -0 "$dd" 2>/dev/null; do
    sleep 0.2
    ((SECONDS - asked >= 3)) || continue
    asked=$SECONDS
    # dd reports how much has passed each time it is asked
    kill -USR1 "$dd" 2>/dev/null || break
    sleep 0.1
    sent=$(grep -oE '^[0-9]+ bytes' "$report" | tail -n 1 | cut -d' ' -f1 || true)
    say "$what: $((${sent:-0} / 1000000)) of about $((bytes / 1000000)) MB"
  done
  wait "$dd" || status=$?
  rm -f "$report"
  return "$status"
}
