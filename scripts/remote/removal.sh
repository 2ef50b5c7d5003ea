# shellcheck shell=bash
# What `destroy` removes if the settings say so: the image, its caches, the model's revision. Empty: it stays.
: "${NODE:?}" "${TAG?}" "${CACHE_VOLUME?}" "${MODEL?}"

# remove_image: unless another deployment runs it
remove_image() {
  local id
  id=$(docker image inspect --format '{{.Id}}' "$TAG" 2>/dev/null) || return 0
  if [[ -n $(docker ps -aq --filter "ancestor=$id") ]]; then
    say "$NODE: $TAG stays: another container uses it."
    return
  fi
  docker image rm -f "$id" >/dev/null || fail "$NODE: cannot remove the image $TAG; the line above says why."
  emit removed "$TAG"
}

# remove_model: unless another deployment serves from it
remove_model() {
  local server
  [[ -e $MODEL/.complete || -e $MODEL/.incoming ]] || return 0
  server=$(served_from "$MODEL" -a)
  if [[ -n $server ]]; then
    say "$NODE: $MODEL stays: $server uses it."
    return
  fi
  remove_revision "$MODEL"
  emit removed "$MODEL"
}

main() {
  case ${1-} in
    apply) ;;
    remove)
      [[ -z $TAG ]] || remove_image
      [[ -z $CACHE_VOLUME ]] || docker volume rm -f "$CACHE_VOLUME" >/dev/null || say "$NODE: the caches stay: they are in use."
      [[ -z $MODEL ]] || remove_model
      ;;
    *) fail "removal: apply or remove" ;;
  esac
}

main "$@" </dev/null
