# shellcheck shell=bash
# On a worker: let the head's key in, from the head's fabric addresses, for the receiver alone.
: "${NODE:?}" "${KEY:?}" "${PUBLIC_KEY?}" "${FROM:?}" "${RECEIVER?}"

main() {
  local authorized=$HOME/.ssh/authorized_keys
  # Named by the node too: a machine that was renamed is both for a while, the new before the old one goes.
  local mark=$KEY/$NODE receiver=$HOME/.local/share/spark-vllm/$KEY-$NODE.sh
  install -d -m 700 "$HOME/.ssh"
  mkdir -p "${receiver%/*}"
  touch "$authorized"
  chmod 600 "$authorized"
  local others
  others=$(awk -v mark="$mark" '$NF != mark' "$authorized")
  case ${1-} in
    apply)
      printf '%s' "$RECEIVER" >"$receiver.new"
      chmod 700 "$receiver.new"
      mv "$receiver.new" "$receiver"
      others+=${others:+$'\n'}"from=\"$FROM\",restrict,command=\"$receiver\" $PUBLIC_KEY $mark"
      ;;
    remove) rm -f "$receiver" ;;
    *) fail "fabric-peer: apply or remove" ;;
  esac
  printf '%s%s' "$others" "${others:+$'\n'}" >"$authorized.$KEY"
  chmod 600 "$authorized.$KEY"
  mv "$authorized.$KEY" "$authorized"
}

main "$@" </dev/null
