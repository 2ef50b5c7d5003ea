# shellcheck shell=bash
# On the head: are exactly the expected Ray nodes alive, each with its GPU, and do they stay?
: "${NODE:?}" "${CONTAINER:?}" "${ADDRESS:?}" "${EXPECT:?}" "${WAIT:?}"

main() {
  local status=0
  docker exec "$CONTAINER" python3 /spark/ray_nodes.py \
    --address "$ADDRESS" --expect "$EXPECT" --drain --gpus 1 --stable 3 --timeout "$WAIT" || status=$?
  if ((status != 0)); then
    say "$NODE: last lines of $CONTAINER:"
    docker logs --tail 15 "$CONTAINER" >&2 || true
    exit "$status"
  fi
}

main </dev/null
