# shellcheck shell=bash
# The containers of one stack on this node: told, or, those of IDS, removed.
: "${NODE:?}" "${PROJECT:?}" "${STACK:?}" "${IDS?}"

main() {
  local -a filter=(--filter "label=spark-vllm.project=$PROJECT" --filter "label=spark-vllm.stack=$STACK")
  local -a ids
  read -ra ids <<<"$IDS"
  if ((${#ids[@]})); then
    docker rm -f "${ids[@]}" >/dev/null || fail "$NODE: not all of the containers could be removed; docker ps -a there shows which are left."
  else
    docker ps -a --no-trunc "${filter[@]}" --format 'container={{.ID}} {{.Names}} {{.Status}}'
  fi
}

main </dev/null
