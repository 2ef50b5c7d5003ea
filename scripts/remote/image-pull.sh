# shellcheck shell=bash
# Pull an image by digest, with progress, and give it the local tag of its pin.
: "${NODE:?}" "${REF:?}" "${DIGEST:?}" "${TAG:?}" "${REGISTRY:?}" "${REGISTRY_USER?}"

# megabytes over all links of the node
received() { awk '/:/ && $1 != "lo:" {sum += $2} END {print int(sum / 1000000)}' /proc/net/dev; }
# Docker says nothing of how much of a layer is there.
pulling() { echo "$NODE: pulling $REF: $(($(received) - before)) MB have come in"; }

pull() {
  local before
  before=$(received)
  [[ -z $REGISTRY_USER ]] || log_in
  meanwhile pulling docker pull "$REF" >&2 ||
    fail "$NODE: cannot pull $REF; see the line above, and whether this node reaches the registry (a private one needs image.registryUser)."
}

main() {
  if docker image inspect --format '{{json .RepoDigests}}' "$TAG" 2>/dev/null | holds -F "$DIGEST"; then
    say "$NODE: $TAG is there"
  else
    docker image inspect "$REF" >/dev/null 2>&1 || pull
    docker tag "$REF" "$TAG"
  fi
  local arch machine
  arch=$(docker image inspect --format '{{.Architecture}}' "$TAG")
  machine=$(docker version --format '{{.Server.Arch}}')
  [[ $arch == "$machine" ]] || fail "$NODE: $REF is for $arch, and this node is $machine; choose an image for $machine."
  emit identity "$(image_identity "$TAG")"
  emit size "$(docker image inspect --format '{{.Size}}' "$TAG")"
}

main </dev/null
