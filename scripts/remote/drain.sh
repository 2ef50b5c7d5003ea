# shellcheck shell=bash
# On the head: take the Ray nodes out that the settings do not name, before a new one takes their place.
# A node that is drained keeps its container, without Ray in it, until `up` deletes it at its end.
: "${NODE:?}" "${CONTAINER:?}" "${ADDRESS:?}" "${EXPECT:?}" "${WAIT:?}"

main() {
  local status=0
  docker exec "$CONTAINER" python3 /spark/ray_nodes.py \
    --address "$ADDRESS" --expect "$EXPECT" --drain --missing-ok --timeout "$WAIT" || status=$?
  if ((status != 0)); then
    say "$NODE: last lines of $CONTAINER:"
    docker logs --tail 15 "$CONTAINER" >&2 || true
    exit "$status"
  fi
}

main </dev/null
