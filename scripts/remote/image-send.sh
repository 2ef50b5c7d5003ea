# shellcheck shell=bash
# On the head: send an image to one worker over the fabric, and see that both hold the same.
: "${NODE:?}" "${PEER:?}" "${PEER_ADDRESS:?}" "${TAG:?}"

main() {
  local mine theirs
  docker image inspect "$TAG" >/dev/null 2>&1 ||
    fail "$NODE: the image $TAG is gone; bring it back with: pulumi up --replace '**::image-*'."
  mine=$(image_identity "$TAG")
  theirs=$(peer image-identity "$TAG") ||
    fail "$NODE cannot reach $PEER at $PEER_ADDRESS over the fabric by SSH; the line above says why."
  if [[ $mine == "$theirs" ]]; then
    say "$PEER: $TAG is there"
  else
    docker save "$TAG" | pour "$PEER" "$(docker image inspect --format '{{.Size}}' "$TAG")" | peer image-load "$TAG" >&2 ||
      fail "$PEER: the image did not arrive whole; what serves goes on serving. Run it again when the cause above is mended."
    theirs=$(peer image-identity "$TAG")
  fi
  [[ $mine == "$theirs" ]] || fail "$PEER holds another image under $TAG than $NODE ($theirs, not $mine)."
  emit identity "$theirs"
}

main </dev/null
