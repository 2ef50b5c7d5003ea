# shellcheck shell=bash
# On the head: is the model that is there already whole? Changes nothing in its directory.
# MANIFEST: where the list of its files goes by which the workers are compared, relative to the home directory, where
# a session begins; empty without workers.
: "${NODE:?}" "${DIRECTORY:?}" "${MANIFEST?}"

# promised_size FILE: how long a safetensors file says that it is: 8 bytes, its header, its tensors
promised_size() {
  local header
  header=$(od -An -tu8 --endian=little -N8 -- "$1" | tr -d ' ')
  [[ $header =~ ^[0-9]{1,9}$ ]] || header=0
  head -c "$((8 + header))" -- "$1" | tail -c +9 | { grep -oE '"data_offsets" *: *\[ *[0-9]+ *, *[0-9]+' || true; } |
    awk -F '[^0-9]+' -v end="$((8 + header))" '$3 > most {most = $3} END {printf "%.0f\n", end + most}'
}

main() {
  local file size promised
  shopt -s nullglob
  [[ -d $DIRECTORY ]] || fail "$NODE: no directory $DIRECTORY; copy the model there, or mend model.directory."
  check_index "$DIRECTORY"
  for file in "$DIRECTORY"/*.safetensors; do
    size=$(file_size "$file")
    promised=$(promised_size "$file")
    ((size == promised)) ||
      fail "$NODE: $file is $size bytes long, and its header promises $promised: copy this file again."
  done
  if [[ -n $MANIFEST ]]; then
    mkdir -p "$(dirname "$MANIFEST")"
    files_of "$DIRECTORY" | sed 's/^/64 /' | measure "$DIRECTORY" | sort >"$MANIFEST.new" ||
      fail "$NODE: a file of $DIRECTORY cannot be read by $(id -un); see the line above."
    mv "$MANIFEST.new" "$MANIFEST"
  fi
  report "$DIRECTORY"
}

main </dev/null
