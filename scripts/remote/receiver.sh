# shellcheck shell=bash
# On a worker, as the forced command of the head's key: the only things that the head may ask for.
read -r verb argument second <<<"${SSH_ORIGINAL_COMMAND-}"
[[ $argument$second =~ ^[a-zA-Z0-9_./:-]*$ ]] || fail "malformed argument"

case $verb in
  image-identity) image_identity "$argument" ;;
  image-adopt) docker tag "$argument" "$second" 2>/dev/null || true ;;
  image-layers) docker image ls -aq --no-trunc | sort -u | xargs -r docker image inspect --format '{{json .RootFS.Layers}}' ;;
  image-load) docker load -q ;;
  *) fail "not allowed: $verb" ;;
esac
