# shellcheck shell=bash
# On the head: one revision of the hub in a folder of its own, whole and verified. What is there already and right is
# not fetched again. The image's own huggingface_hub does it, as the user of this session.
: "${NODE:?}" "${REPO:?}" "${REVISION:?}" "${ENDPOINT:?}" "${ROOT:?}" "${DIRECTORY:?}" "${RESERVE_MIB:?}" "${HUB:?}"
: "${TAG:?}" "${TOKEN?}" "${NAME:?}" "${LABELS?}"

# hub list|get: what hub.py reads after the token comes from stdin
hub() {
  local label
  local -a labels=()
  while IFS= read -r label; do
    [[ -z $label ]] || labels+=(--label "$label")
  done <<<"$LABELS"
  # one that a killed run left behind may still be at work on the same files
  docker rm -f "$NAME" >/dev/null 2>&1 || true
  rm -f "$work/container"
  { printf '%s\n' "$TOKEN" && cat; } |
    docker run --rm -i --name "$NAME" --cidfile "$work/container" "${labels[@]}" --network host --user "$(id -u):$(id -g)" --cpu-shares 128 \
      --security-opt no-new-privileges --cap-drop ALL -v "$ROOT:$ROOT" \
      -e HOME=/tmp -e NODE="$NODE" -e HF_ENDPOINT="$ENDPOINT" -e HF_HUB_OFFLINE=0 -e HF_HUB_ENABLE_HF_TRANSFER=0 \
      -e HF_HUB_DISABLE_TELEMETRY=1 -e HF_HUB_DISABLE_PROGRESS_BARS=1 -e NVIDIA_VISIBLE_DEVICES=void \
      --entrypoint python3 "$TAG" -c "$HUB" "$1" "$REPO" "$REVISION" "$DIRECTORY"
}

repair() {
  local server
  server=$(served_from "$DIRECTORY")
  [[ -z $server ]] ||
    fail "$NODE: $(cut -d' ' -f4- "$work/wanted" | cat - "$work/extras" | sed -n 1p) in $DIRECTORY is not as the hub has it, and $server serves from there; nothing was changed. Stop it (docker stop $server), then: pulumi up --refresh --replace '**::model-*'."
  need_room "$NODE" "$DIRECTORY" "$(bytes_of <"$work/wanted")" "$(free_bytes "$DIRECTORY")"
  remove_extras "$DIRECTORY" <"$work/extras"
  hub get <"$work/wanted" || fail "$NODE: $REPO did not arrive whole; what serves goes on serving. Run it again: it goes on from there."
  cut -d' ' -f2- "$work/wanted" | wanted "$DIRECTORY" >"$work/still"
  [[ ! -s $work/still ]] ||
    fail "$NODE: $(cut -d' ' -f4- "$work/still" | sed -n 1p) of $REPO arrived with another content than the hub announces; run it again, and mind this node's disk and memory if it happens twice."
}

# By its id: a later run's container may have the same name.
clean() {
  [[ ! -s $work/container ]] || docker rm -f "$(<"$work/container")" >/dev/null 2>&1 || true
  rm -rf "$work"
}

main() {
  local manifest=$DIRECTORY/.complete
  work=$(mktemp -d)
  trap clean EXIT
  mkdir -p "$DIRECTORY" || fail "$NODE: $(id -un) cannot make $DIRECTORY; see the line above, or mend model.root."
  [[ -w $DIRECTORY ]] || fail "$NODE: $(id -un) cannot write into $DIRECTORY; give it to that user, or mend model.root."
  if [[ ! -s $manifest ]]; then
    manifest=$work/manifest
    hub list </dev/null >"$manifest" || fail "$NODE: nothing was fetched; the line above says why."
  fi
  wanted "$DIRECTORY" <"$manifest" >"$work/wanted"
  extras "$DIRECTORY" <"$manifest" >"$work/extras"
  [[ ! -s $work/wanted && ! -s $work/extras ]] || repair
  check_index "$DIRECTORY"
  complete "$DIRECTORY" <"$manifest"
  report "$DIRECTORY"
}

main </dev/null
