# shellcheck shell=bash
# What of one stack is on this node, for a state that may not know it: told, or, what REMOVE lists, removed.
# KEY: name of the SSH key by which the head sends files. REMOVE: "kind name" lines.
: "${NODE:?}" "${PROJECT:?}" "${STACK:?}" "${KEY:?}" "${REMOVE?}"

doors() {
  {
    [[ ! -r $AUTHORIZED ]] || awk -v key="$KEY/" 'index($NF, key) == 1 {print substr($NF, length(key) + 1)}' "$AUTHORIZED"
    [[ ! -d $RECEIVERS ]] || find "$RECEIVERS" -maxdepth 1 -name "$KEY-*.sh" -printf '%f\n' | sed "s/^$KEY-//; s/\.sh$//"
  } | sort -u
}

tell() {
  local name
  our_containers || fail "$NODE: Docker does not answer: $(docker version 2>&1 | tail -n 1)"
  docker volume ls -q --filter "label=spark-vllm.project=$PROJECT" --filter "label=spark-vllm.stack=$STACK" | while read -r name; do
    emit volume "$name"
  done
  [[ ! -e $HOME/.ssh/$KEY ]] || emit key "$KEY"
  doors | while read -r name; do emit door "$name"; done
}

remove() {
  local kind name failed=
  while read -r kind name; do
    case $kind in
      container) docker rm -f "$name" >/dev/null || failed+=" $name" ;;
      volume) docker volume rm "$name" >/dev/null || failed+=" $name" ;;
      key) rm -f "$HOME/.ssh/$KEY" "$HOME/.ssh/$KEY.pub" ;;
      door) close_door "$name" ;;
    esac
  done <<<"$REMOVE"
  [[ -z $failed ]] || fail "$NODE: not removed:$failed; docker ps -a and docker volume ls there show what is left."
}

main() {
  if [[ -n $REMOVE ]]; then remove; else tell; fi
}

main </dev/null
