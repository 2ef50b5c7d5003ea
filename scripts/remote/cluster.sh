# shellcheck shell=bash
# On the head, of its Ray cluster: what ray_nodes.py does with OPTIONS, which are words with spaces between. Either
# those that the settings do not name are drained, before a new one takes their place (what is drained keeps its
# container, without Ray in it, until `up` deletes it at its end), or exactly the expected must be alive and stay.
: "${NODE:?}" "${CONTAINER:?}" "${ADDRESS:?}" "${EXPECT:?}" "${OPTIONS:?}" "${WAIT:?}"

main() {
  local status=0
  local -a options
  read -ra options <<<"$OPTIONS"
  docker exec "$CONTAINER" python3 /spark/ray_nodes.py \
    --address "$ADDRESS" --expect "$EXPECT" --timeout "$WAIT" "${options[@]}" || status=$?
  if ((status != 0)); then
    say "$NODE: last lines of $CONTAINER:"
    docker logs --tail 15 "$CONTAINER" >&2 || true
    exit "$status"
  fi
}

main </dev/null
