# shellcheck shell=bash
# On the head: what a worker lacks of the model, over the fabric; then every file there is as the head's.
# FOLDER: the model's folder as the receiver takes it. OURS: yes where files that the head lacks are removed there.
: "${NODE:?}" "${DIRECTORY:?}" "${FOLDER:?}" "${MANIFEST:?}" "${OURS:?}" "${RESERVE_MIB:?}"

# stream: "<have> <hash> <size> <path>" lines in, out each line and after it the bytes that are lacking
stream() {
  local have hash size path
  while read -r have hash size path; do
    printf '%s %s %s %s\n' "$have" "$hash" "$size" "$path"
    tail -c "+$((have + 1))" -- "$DIRECTORY/$path" | head -c "$((size - have))"
  done
}

# ask MANIFEST: what the worker says of its folder, in files by the first word of each line
ask() {
  peer model-wanted "$FOLDER" <"$1" >"$work/answer" ||
    fail "$NODE cannot learn from $PEER at $PEER_ADDRESS what it has of the model; the line above says why."
  sed -n 's/^want //p' "$work/answer" >"$work/wanted"
  sed -n 's/^extra //p' "$work/answer" >"$work/extras"
}

change() {
  local server bytes
  server=$(served_from "$DIRECTORY")
  [[ -n $server ]] || server=$(sed -n 's/^served //p' "$work/answer")
  [[ -z $server ]] ||
    fail "$PEER: $(cut -d' ' -f4- "$work/wanted" | cat - "$work/extras" | sed -n 1p) in $DIRECTORY is not as on $NODE, and $server serves from there; nothing was changed. Stop it (docker stop $server), then: pulumi up --refresh --replace '**::model-*'."
  bytes=$(bytes_of <"$work/wanted")
  need_room "$PEER" "$DIRECTORY" "$bytes" "$(sed -n 's/^free //p' "$work/answer")"
  [[ -s $work/wanted ]] || return 0
  say "$PEER: $(wc -l <"$work/wanted") files, $((bytes / 1000000)) MB to go"
  stream <"$work/wanted" | pour "$PEER" "$bytes" | peer model-put "$FOLDER" >&2 ||
    fail "$PEER: the model did not arrive whole; what serves goes on serving. Run it again: it goes on from there."
  cut -d' ' -f2- "$work/wanted" >"$work/sent"
  ask "$work/sent"
  [[ ! -s $work/wanted ]] ||
    fail "$PEER: $(cut -d' ' -f4- "$work/wanted" | sed -n 1p) arrived with another content than $NODE sent; run it again, and mind that node's disk and memory if it happens twice."
}

main() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  [[ -s $MANIFEST ]] || fail "$NODE: $MANIFEST is gone; make it again: pulumi up --replace '**::model-$NODE'."
  ask "$MANIFEST"
  if [[ $OURS == no ]] && grep -m1 '\.safetensors$' "$work/extras" >"$work/stray"; then
    fail "$PEER: $DIRECTORY/$(cat "$work/stray") is there, and $NODE has no such file: remove it, or copy it to $NODE."
  fi
  if [[ -s $work/wanted || ($OURS == yes && -s $work/extras) ]]; then
    change
  else
    say "$PEER: the model is there"
  fi
  [[ $OURS == no ]] || peer model-complete "$FOLDER" "$(sha256sum <"$MANIFEST" | cut -d' ' -f1)" <"$MANIFEST" >&2
  emit files "$(wc -l <"$MANIFEST")"
}

main </dev/null
