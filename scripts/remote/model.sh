# shellcheck shell=bash
# A model's files against its manifest: one file a line, "<hash> <size> <path>". A hash of 64 digits is a SHA-256, one
# of 40 digits that of a Git blob. What begins with a dot is no part of a model: in a folder of ours .complete is the
# manifest, written last, and .incoming/<hash>/<path> is a file on its way, so that a killed transfer goes on.
: "${NODE:?}"

# One line of `measure`: "<digits of the hash> <path>".
measure_file() {
  local digits=${1%% *} path=${1#* } size sum
  size=$(stat -Lc %s -- "$path")
  if ((digits == 40)); then
    sum=$({ printf 'blob %s\0' "$size" && dd if="$path" iflag=nocache bs=4M status=none; } | sha1sum)
  else
    # past the page cache: on a Spark that is the memory which a server needs
    sum=$(dd if="$path" iflag=nocache bs=4M status=none | sha256sum)
  fi
  printf '%s %s %s\n' "${sum%% *}" "$size" "$path"
}
export -f measure_file

# measure DIR: "<digits> <path>" lines in, "<hash> <size> <path>" lines out, in any order; four files at a time
measure() {
  local dir=$1 line='' part status count=0
  local -a files
  mapfile -t files
  ((${#files[@]})) || return 0
  # shellcheck disable=SC2016
  (cd "$dir" && printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P 4 bash -o pipefail -ec 'measure_file "$1"' _) | while :; do
    status=0
    # what came before the time was up is the beginning of a line
    IFS= read -r -t 3 part || status=$?
    line+=$part
    if ((status == 0)); then
      count=$((count + 1))
      printf '%s\n' "$line"
      line=
    elif ((status <= 128)); then
      break
    fi
    every 3 "$NODE: $count of ${#files[@]} files of $dir read"
  done
}

# file_size FILE: its bytes, or 0
file_size() { stat -Lc %s -- "$1" 2>/dev/null || printf '0\n'; }

# wanted DIR: the manifest in; out what is missing or not as it says, "<bytes in .incoming> <hash> <size> <path>" a line
wanted() (
  dir=$1
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  sort >"$work/manifest"
  while read -r hash size path; do
    if [[ -f $dir/$path ]] && (($(file_size "$dir/$path") == size)); then
      printf '%s %s\n' "${#hash}" "$path"
    fi
  done <"$work/manifest" >"$work/present"
  # a file that cannot be read is not listed, and so wanted
  { measure "$dir" <"$work/present" || true; } | sort >"$work/measured"
  comm -23 "$work/manifest" "$work/measured" | while read -r hash size path; do
    have=$(file_size "$dir/.incoming/$hash/$path")
    ((have <= size)) || have=0
    printf '%s %s %s %s\n' "$have" "$hash" "$size" "$path"
  done
)

# files_of DIR: the paths of a model's files
files_of() { (cd "$1" && find -L . -mindepth 1 -name '.*' -prune -o -type f -printf '%P\n'); }

# extras DIR: the manifest in, out the paths that it does not name
extras() { comm -13 <(cut -d' ' -f3- | sort) <(files_of "$1" | sort); }

# remove_extras DIR: paths in, and those files go
remove_extras() {
  local path
  while IFS= read -r path; do
    say "$NODE: removing $path, which the revision does not have"
    rm -f -- "$1/$path"
  done
}

# complete DIR: the manifest in; the folder is whole from now on, also after a power cut
complete() {
  rm -rf "$1/.incoming"
  cat >"$1/.complete.new"
  (cd "$1" && files_of . | tr '\n' '\0' | xargs -0 -r sync .complete.new)
  mv "$1/.complete.new" "$1/.complete"
}

# remove_revision DIR: the mark first, so that half a revision does not pass for a whole one
remove_revision() { rm -f -- "$1/.complete" && rm -rf -- "$1"; }

# bytes_of: "<have> <hash> <size> <path>" lines in, out how many bytes are lacking
bytes_of() {
  local have size sum=0
  while read -r have _ size _; do sum=$((sum + size - have)); done
  printf '%s\n' "$sum"
}

# free_bytes DIR: what its file system, or that of the directory above it, has left
free_bytes() {
  local dir=$1
  until [[ -d $dir ]]; do dir=$(dirname "$dir"); done
  df -B1 --output=avail "$dir" | tail -n 1 | tr -d ' '
}

# need_room NODE DIR BYTES FREE: refuse what does not fit; an older revision stays until it is removed by hand
need_room() {
  local reserve=$((RESERVE_MIB * 1024 * 1024))
  (($3 + reserve <= $4)) ||
    fail "$1: $2 needs $(($3 / 1000000)) MB and has $(($4 / 1000000)) MB free ($RESERVE_MIB MiB stay unused); nothing was changed. Remove what is not needed there, for example an older revision."
}

# served_from DIR [-a]: a running container (with -a, any) of this node that serves from the folder, if there is one
served_from() {
  local dir=$1 ids id facts source target
  ids=$(docker ps -q "${@:2}") || fail "$NODE: Docker does not say what runs, so nothing is changed in $dir."
  for id in $ids; do
    facts=$(docker inspect --format '{{.Name}}{{"\n"}}{{range .Args}}{{.}}{{"\n"}}{{end}}' "$id" 2>/dev/null) || continue
    while IFS=$'\t' read -r source target; do
      # the folder itself is mounted, or one above it is and an argument names the folder
      if [[ $dir == "$source" ]] ||
        { [[ $dir == "$source"/* ]] && grep -qxF -- "$target${dir#"$source"}" <<<"$facts"; }; then
        facts=${facts%%$'\n'*}
        printf '%s\n' "${facts#/}"
        return
      fi
    done < <(docker inspect --format '{{range .Mounts}}{{.Source}}{{"\t"}}{{.Destination}}{{"\n"}}{{end}}' "$id")
  done
}

# check_index DIR: is it a model's folder, with all shards that its index names?
check_index() {
  local dir=$1 shard index=$1/model.safetensors.index.json
  [[ -s $dir/config.json ]] || fail "$NODE: $dir/config.json is missing or empty: is this a model's directory?"
  if [[ -s $index ]]; then
    while IFS= read -r shard; do
      [[ -s $dir/$shard ]] || fail "$NODE: $dir/$shard is missing or empty, and the index names it."
    done < <(grep -oE '"[^"]+\.safetensors"' "$index" | tr -d '"' | sort -u)
  else
    compgen -G "$dir/*.safetensors" >/dev/null || fail "$NODE: $dir holds no *.safetensors file."
  fi
}

# report DIR: what a folder holds, as outputs
report() {
  emit files "$(files_of "$1" | wc -l)"
  emit bytes "$(cd "$1" && find -L . -mindepth 1 -name '.*' -prune -o -type f -printf '%s\n' |
    { total=0 && while read -r size; do total=$((total + size)); done && printf '%s' "$total"; })"
}
