# shellcheck shell=bash
# What do registry and hub say of image and model? Asked as the deployment will ask; changes nothing.
# REF: the image, unless TAG, its local tag, is there. HUB: where to ask for the model, unless the file PRESENT is
# there. REF and HUB are empty where they are not asked for, TAG and PRESENT to ask in any case.
: "${NODE:?}" "${REF?}" "${TAG?}" "${REGISTRY?}" "${REGISTRY_USER?}" "${HUB?}" "${PRESENT?}"
HUB_TOKEN=${HUB_TOKEN-}
REGISTRY_PASSWORD=${REGISTRY_PASSWORD-}
export DOCKER_CLI_EXPERIMENTAL=enabled

# plain HTTP only where this node's Docker pulls by it
is_insecure() {
  docker info --format '{{range .RegistryConfig.IndexConfigs}}{{if not .Secure}}{{println .Name}}{{end}}{{end}}' |
    holds -xF -- "$REGISTRY"
}

# ask NAME COMMAND...: emits what the command printed as NAME, or the last line of its errors as NAME_fault
ask() {
  local name=$1 out errors
  shift
  errors=$(mktemp)
  if out=$("$@" 2>"$errors"); then
    emit "$name" "$(tr -d '\n' <<<"$out")"
  else
    emit "${name}_fault" "$(tail -n 1 "$errors")"
  fi
  rm -f "$errors"
}

manifest() {
  local -a options=()
  ! is_insecure || options=(--insecure)
  timeout 30 docker manifest inspect -v "${options[@]}" "$REF"
}

revision() {
  curl -fsSL --max-time 30 -H @- "$HUB" <<<"${HUB_TOKEN:+Authorization: Bearer $HUB_TOKEN}"
}

main() {
  emit arch "$(docker version --format '{{.Server.Arch}}')"
  if [[ -n $REF ]] && { [[ -z $TAG ]] || ! docker image inspect "$TAG" >/dev/null 2>&1; }; then
    [[ -z $REGISTRY_USER || -z $REGISTRY_PASSWORD ]] || log_in
    ask image manifest
  fi
  if [[ -n $HUB ]] && { [[ -z $PRESENT ]] || [[ ! -e $PRESENT ]]; }; then
    ask model revision
  fi
}

main </dev/null
