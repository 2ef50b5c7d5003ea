# shellcheck shell=bash
# How much of image and model does this node lack? Asks the registry and the hub, as the deployment will; changes nothing.
# REF: the image to ask for, TAG: its local tag. HUB: the address to ask for the model's files, PRESENT: the file
# that is there when the model is. Each is empty where it is not asked for.
: "${NODE:?}" "${REF?}" "${TAG:?}" "${HUB?}" "${PRESENT?}"
HUB_TOKEN=${HUB_TOKEN-}
export DOCKER_CLI_EXPERIMENTAL=enabled

manifest() {
  timeout 30 docker manifest inspect -v "$1" 2>/dev/null || timeout 30 docker manifest inspect --insecure -v "$1"
}

main() {
  emit arch "$(docker version --format '{{.Server.Arch}}')"
  if [[ -n $REF ]] && ! docker image inspect "$TAG" >/dev/null 2>&1; then
    emit image "$(manifest "$REF" | tr -d '\n' || true)"
  fi
  if [[ -n $HUB && ! -e $PRESENT ]]; then
    emit model "$(curl -fsSL --max-time 30 -H @- "$HUB" <<<"${HUB_TOKEN:+Authorization: Bearer $HUB_TOKEN}" | tr -d '\n' || true)"
  fi
}

main </dev/null
