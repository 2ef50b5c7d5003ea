# shellcheck shell=bash
# The containers of one stack on this node: told, or, those of IDS, removed.
: "${NODE:?}" "${PROJECT:?}" "${STACK:?}" "${IDS?}"

main() {
  local -a ids
  read -ra ids <<<"$IDS"
  if ((${#ids[@]})); then
    docker rm -f "${ids[@]}" >/dev/null || fail "$NODE: not all of the containers could be removed; docker ps -a there shows which are left."
  else
    our_containers || fail "$NODE: Docker does not answer: $(docker version 2>&1 | tail -n 1)"
  fi
}

main </dev/null
