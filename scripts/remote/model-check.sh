# shellcheck shell=bash
# Are the model's files on this node, as the index names them? Reads only.
: "${NODE:?}" "${DIRECTORY:?}"

main() {
  [[ -d $DIRECTORY ]] || fail "$NODE: no directory $DIRECTORY; copy the model there, or mend model.directory."
  [[ -s $DIRECTORY/config.json ]] || fail "$NODE: $DIRECTORY/config.json is missing or empty: is this a model's directory?"
  local shard index=$DIRECTORY/model.safetensors.index.json
  if [[ -s $index ]]; then
    while IFS= read -r shard; do
      [[ -s $DIRECTORY/$shard ]] || fail "$NODE: $DIRECTORY/$shard is missing or empty, and the index names it."
    done < <(grep -oE '"[^"]+\.safetensors"' "$index" | tr -d '"' | sort -u)
  else
    compgen -G "$DIRECTORY/*.safetensors" >/dev/null || fail "$NODE: $DIRECTORY holds no *.safetensors file."
  fi
  emit files "$(find -L "$DIRECTORY" -maxdepth 1 -type f | wc -l)"
  emit bytes "$(find -L "$DIRECTORY" -maxdepth 1 -type f -printf '%s\n' | awk '{sum += $1} END {print sum + 0}')"
}

main </dev/null
