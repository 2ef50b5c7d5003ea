# shellcheck shell=bash
# On a worker, as the forced command of the head's key: the only things that the head may ask for.
# MODELS: the directory below which it may write.
: "${NODE:?}" "${MODELS:?}"

# put DIR: of each file a line "<have> <hash> <size> <path>", and then its bytes from <have> on
put() {
  local dir=$1 have hash size path part
  mkdir -p "$dir/.incoming"
  exec 9<"$dir"
  flock -w 60 9 || fail "$NODE: another transfer into $dir is under way; wait for its end."
  while read -r have hash size path; do
    [[ $have =~ ^[0-9]+$ && $hash =~ ^[0-9a-f]{40,64}$ && $size =~ ^[0-9]+$ && -n $path && /$path/ != */../* ]] ||
      fail "$NODE: malformed transfer"
    part=$dir/.incoming/$hash/$path
    mkdir -p "$(dirname "$part")" "$(dirname "$dir/$path")"
    ((have > 0)) || : >"$part"
    (($(file_size "$part") == have)) || fail "$NODE: $path changed under the transfer; run it again."
    head -c "$((size - have))" >>"$part"
    (($(file_size "$part") == size)) || fail "$NODE: the transfer of $path was cut."
    mv -f "$part" "$dir/$path"
  done
  rm -rf "$dir/.incoming"
}

# answer DIR: the manifest in, out all that the head must know before it changes something
answer() (
  manifest=$(mktemp)
  trap 'rm -f "$manifest"' EXIT
  cat >"$manifest"
  server=$(served_from "$1")
  [[ -z $server ]] || printf 'served %s\n' "$server"
  printf 'free %s\n' "$(free_bytes "$1")"
  wanted "$1" <"$manifest" | sed 's/^/want /'
  [[ ! -d $1 ]] || extras "$1" <"$manifest" | sed 's/^/extra /'
)

# finish DIR SHA256: the manifest in, which has that hash; what it does not name goes
finish() (
  manifest=$(mktemp)
  unnamed=$(mktemp)
  trap 'rm -f "$manifest" "$unnamed"' EXIT
  cat >"$manifest"
  [[ $(sha256sum <"$manifest") == "$2 "* ]] || fail "$NODE: the list of the model's files was cut on its way; run it again."
  extras "$1" <"$manifest" >"$unnamed"
  server=$(served_from "$1")
  [[ ! -s $unnamed || -z $server ]] || fail "$NODE: $server serves from $1, so nothing is removed there; stop it first."
  remove_extras "$1" <"$unnamed"
  complete "$1" <"$manifest"
)

unpacking() { echo "$NODE: unpacking the image"; }

read -r verb argument second <<<"${SSH_ORIGINAL_COMMAND-}"
[[ $argument$second =~ ^[a-zA-Z0-9_./:-]*$ && /$argument/ != */../* ]] || fail "malformed argument"
folder=$MODELS
[[ $argument == . ]] || folder+=/$argument

case $verb in
  image-identity) image_identity "$argument" ;;
  image-adopt) docker tag "$argument" "$second" 2>/dev/null || true ;;
  image-layers) docker image ls -aq --no-trunc | sort -u | xargs -r docker image inspect --format '{{json .RootFS.Layers}}' ;;
  image-load) meanwhile unpacking docker load -q ;;
  model-wanted) answer "$folder" ;;
  model-put) put "$folder" ;;
  model-complete) finish "$folder" "$second" ;;
  *) fail "not allowed: $verb" ;;
esac
