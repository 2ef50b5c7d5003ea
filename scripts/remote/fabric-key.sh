# shellcheck shell=bash
# On the head: the key by which it sends files to the workers, and nothing else.
: "${NODE:?}" "${KEY:?}"

main() {
  local file=$HOME/.ssh/$KEY
  case ${1-} in
    apply)
      install -d -m 700 "$HOME/.ssh"
      # one that was killed may have left half of it
      if ! ssh-keygen -y -P '' -f "$file" >/dev/null 2>&1; then
        rm -f "$file" "$file.pub"
        ssh-keygen -q -t ed25519 -N '' -C "$KEY" -f "$file"
      fi
      [[ -s $file.pub ]] || ssh-keygen -y -P '' -f "$file" >"$file.pub"
      emit public_key "$(cut -d' ' -f1,2 <"$file.pub")"
      ;;
    remove) rm -f "$file" "$file.pub" ;;
    *) fail "fabric-key: apply or remove" ;;
  esac
}

main "$@" </dev/null
