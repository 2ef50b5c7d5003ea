# shellcheck shell=bash
# On the head: send an image to one worker over the fabric, and see that both hold the same.
: "${NODE:?}" "${PEER:?}" "${PEER_ADDRESS:?}" "${TAG:?}" "${LAYERS_PROGRAM:?}"

# without_layers FILE: the archive on stdin without the layers that the worker's images, listed in FILE, have
without_layers() {
  local program
  if program=$(command -v python3); then
    "$program" -c "$LAYERS_PROGRAM" "$(docker image inspect --format '{{json .RootFS.Layers}}' "$TAG")" "$1"
  else
    say "$NODE has no python3, so layers that $PEER has are sent too."
    cat
  fi
}

send() {
  local theirs status=0
  theirs=$(mktemp)
  peer image-layers >"$theirs" || return
  docker save "$TAG" | without_layers "$theirs" |
    pour "$PEER" "$(docker image inspect --format '{{.Size}}' "$TAG")" | peer image-load >&2 || status=$?
  rm -f "$theirs"
  return "$status"
}

main() {
  local mine theirs
  docker image inspect "$TAG" >/dev/null 2>&1 ||
    fail "$NODE: the image $TAG is gone; bring it back with: pulumi up --replace '**::image-*'."
  mine=$(image_identity "$TAG")
  # the worker may hold it under another name
  peer image-adopt "$(docker image inspect --format '{{.Id}}' "$TAG")" "$TAG" ||
    fail "$NODE cannot reach $PEER at $PEER_ADDRESS over the fabric by SSH; the line above says why."
  theirs=$(peer image-identity "$TAG")
  if [[ $mine == "$theirs" ]]; then
    say "$PEER: $TAG is there"
  else
    send ||
      fail "$PEER: the image did not arrive whole; what serves goes on serving. Run it again when the cause above is mended."
    theirs=$(peer image-identity "$TAG")
  fi
  [[ $mine == "$theirs" ]] || fail "$PEER holds another image under $TAG than $NODE ($theirs, not $mine)."
  emit identity "$theirs"
}

main </dev/null
