# shellcheck shell=bash
# On a worker: let the head's key in, from the head's fabric addresses, for the receiver alone.
: "${NODE:?}" "${KEY:?}" "${PUBLIC_KEY?}" "${FROM:?}" "${RECEIVER?}"

main() {
  local receiver
  receiver=$(receiver_of "$NODE")
  case ${1-} in
    apply)
      mkdir -p "${receiver%/*}"
      printf '%s' "$RECEIVER" >"$receiver.new"
      chmod 700 "$receiver.new"
      mv "$receiver.new" "$receiver"
      set_door "$NODE" "from=\"$FROM\",restrict,command=\"$receiver\" $PUBLIC_KEY"
      ;;
    remove) close_door "$NODE" ;;
    *) fail "fabric-peer: apply or remove" ;;
  esac
}

main "$@" </dev/null
