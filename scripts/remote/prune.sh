# shellcheck shell=bash
# What this node keeps and no deployment uses: told, or, what REMOVE lists, removed.
# KEEP_IMAGE: the local tag, KEEP_VOLUME: the cache volume, KEEP_MODEL: the directory of the stack. ROOT: where
# revisions of models have folders of their own; empty where the model is a directory. REMOVE: "kind name" lines.
: "${NODE:?}" "${KEEP_IMAGE:?}" "${KEEP_VOLUME:?}" "${KEEP_MODEL:?}" "${ROOT?}" "${REMOVE?}"

# images under our local tags that neither the stack nor any container uses
images() {
  local tag id used kept
  kept=$(docker image inspect --format '{{.Id}}' "$KEEP_IMAGE" 2>/dev/null || echo none)
  used=$(docker ps -aq | xargs -r docker inspect --format '{{.Image}}')
  docker image ls --no-trunc --format '{{.Repository}}:{{.Tag}} {{.ID}}' 'spark-vllm/*' | while read -r tag id; do
    if [[ $id != "$kept" ]] && ! grep -qxF "$id" <<<"$used"; then
      emit found "image $(docker image inspect --format '{{.Size}}' "$tag") $tag"
    fi
  done
}

volumes() {
  local name
  docker volume ls -q --filter dangling=true --filter name=^spark-vllm-cache- | while read -r name; do
    [[ $name == "$KEEP_VOLUME" ]] || emit found "cache $(volume_bytes "$name") $name"
  done
}

# what Docker says of a volume is rounded, as 1.5GB
volume_bytes() {
  docker system df -v --format '{{range .Volumes}}{{println .Name .Size}}{{end}}' |
    awk -v name="$1" '$1 == name {print $2}' | sed 's/B$//; s/k/K/' | numfmt --from=si 2>/dev/null || echo 0
}

models() {
  local mark directory server
  [[ -n $ROOT && -d $ROOT ]] || return 0
  find "$ROOT" -mindepth 3 -maxdepth 3 -name .complete -type f | sort | while read -r mark; do
    directory=${mark%/.complete}
    server=$(served_from "$directory" -a) || exit 1
    if [[ $directory != "$KEEP_MODEL" && -z $server ]]; then
      emit found "model $(du -sb "$directory" | cut -f1) $directory"
    fi
  done
}

remove() {
  local kind name failed=
  while read -r kind name; do
    [[ -n $kind ]] || continue
    case $kind in
      image) docker image rm -f "$(docker image inspect --format '{{.Id}}' "$name")" >/dev/null || failed+=" $name" ;;
      cache) docker volume rm "$name" >/dev/null || failed+=" $name" ;;
      model)
        [[ -n $ROOT && $name == "$ROOT"/*/* && $name != *..* && $name != "$KEEP_MODEL" ]] || fail "$NODE: $name is no revision below $ROOT"
        remove_revision "$name" || failed+=" $name"
        ;;
    esac
  done <<<"$REMOVE"
  [[ -z $failed ]] || fail "$NODE: not removed:$failed"
}

main() {
  if [[ -n $REMOVE ]]; then
    remove
  else
    images
    volumes
    models
  fi
}

main </dev/null
