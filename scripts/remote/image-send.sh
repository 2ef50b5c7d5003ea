# shellcheck shell=bash
# On the head: send an image to one worker over the fabric, and see that both hold the same.
: "${NODE:?}" "${PEER:?}" "${PEER_ADDRESS:?}" "${PEER_HOST_KEY:?}" "${PEER_USER:?}" "${KEY:?}" "${TAG:?}"

peer() {
  ssh -F none -i "$HOME/.ssh/$KEY" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=10 \
    -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null \
    -o HostKeyAlgorithms=ssh-ed25519 -o HostKeyAlias="$PEER" -o LogLevel=ERROR -o Compression=no \
    -o "KnownHostsCommand=/bin/echo $PEER $PEER_HOST_KEY" -o ServerAliveInterval=15 \
    "$PEER_USER@$PEER_ADDRESS" "$@"
}

send() {
  local size=$1 sent
  docker save "$TAG" | (
    # dd reports how much has passed each time it is asked
    dd bs=4M 2>"$progress" &
    local dd=$!
    while kill -0 "$dd" 2>/dev/null; do
      sleep 3
      kill -USR1 "$dd" 2>/dev/null || break
      sent=$(grep -oE '^[0-9]+ bytes' "$progress" | tail -n 1 | cut -d' ' -f1 || true)
      say "$PEER: $((${sent:-0} / 1000000)) of about $((size / 1000000)) MB"
    done
    wait "$dd"
  ) | peer image-load "$TAG" >&2
}

main() {
  local mine theirs
  progress=$(mktemp)
  trap 'rm -f "$progress"' EXIT
  docker image inspect "$TAG" >/dev/null 2>&1 ||
    fail "$NODE: the image $TAG is gone; bring it back with: pulumi up --replace '**::image-*'."
  mine=$(image_identity "$TAG")
  theirs=$(peer image-identity "$TAG") ||
    fail "$NODE cannot reach $PEER at $PEER_ADDRESS over the fabric by SSH; the line above says why."
  if [[ $mine == "$theirs" ]]; then
    say "$PEER: $TAG is there"
  else
    send "$(docker image inspect --format '{{.Size}}' "$TAG")" ||
      fail "$PEER: the image did not arrive whole; what serves goes on serving. Run it again when the cause above is mended."
    theirs=$(peer image-identity "$TAG")
  fi
  [[ $mine == "$theirs" ]] || fail "$PEER holds another image under $TAG than $NODE ($theirs, not $mine)."
  emit identity "$theirs"
}

main </dev/null
