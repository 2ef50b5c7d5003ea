# shellcheck shell=bash
# Wait until this node's part of the server has loaded; stop at once when it dies.
# HEALTH: the server's URL to ask; empty for a rank, whose entry script is told by rank 0.
# RAY, ADDRESS, EXPECT: the head's Ray container, its address and its members; empty without Ray.
: "${NODE:?}" "${CONTAINER:?}" "${HEALTH?}" "${WAIT:?}" "${RAY?}" "${ADDRESS?}" "${EXPECT?}"

state() { docker inspect --format '{{.State.Status}} {{.State.ExitCode}} {{.RestartCount}}' "$CONTAINER" 2>/dev/null || echo 'gone 0 0'; }

died() {
  say "$NODE: $CONTAINER $1. The first error in its log, and its end:"
  docker logs "$CONTAINER" 2>&1 | first_error >&2 || true
  exit 1
}

# has_failed RESTARTS: since the wait began. What was started again before may serve: a server that crashed in an
# `up` that has failed, a rank whose server went away.
has_failed() {
  if [[ -n $HEALTH ]]; then
    (($1 > restarts_before))
  else
    docker logs --since "$began" "$CONTAINER" 2>&1 | holds -E '^spark-vllm: (lost |.* ended with status)'
  fi
}

is_ready() {
  if [[ -n $HEALTH ]]; then
    curl -fsS -o /dev/null --max-time 5 "$HEALTH" 2>/dev/null
  else
    docker exec "$CONTAINER" test -e /spark/ready 2>/dev/null
  fi
}

# A node that left the settings keeps its container to the end of `up`, and may have come back with it.
drain() {
  timeout 30 docker exec "$RAY" python3 /spark/ray_nodes.py \
    --address "$ADDRESS" --expect "$EXPECT" --drain --missing-ok --timeout 20 >/dev/null || true
}

# the last line of the log, without colours; of a progress bar its last state
last_word() {
  docker logs --tail 1 "$CONTAINER" 2>&1 | tr '\r' '\n' | tail -n 1 | sed 's/\x1b\[[0-9;]*m//g; s/^([^)]*) *//' | cut -c1-160 || true
}

main() {
  local status code restarts restarts_before seen='' line began started
  began=$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)
  read -r status code restarts_before < <(state)
  while :; do
    read -r status code restarts < <(state)
    [[ $status == running || $status == restarting ]] || died "is $status (exit status $code)"
    ! has_failed "$restarts" || died "has ended and was started again by Docker"
    ! is_ready || break
    ((SECONDS < WAIT)) || died "was not ready within $WAIT s (vllm.readyTimeout)"
    line=$(last_word)
    if [[ -n $RAY && $line == *', not expected '* ]]; then
      drain
    fi
    # what sounds worse than it is stays in the log; what is fatal ends the wait
    if [[ $line != "$seen" && -n $line && ! $line =~ (WARN|[Ww]arning) ]]; then
      seen=$line
      say "$line"
    else
      every 15 "still loading"
    fi
    sleep 0.5
  done
  started=$(date -d "$(docker inspect --format '{{.State.StartedAt}}' "$CONTAINER")" +%s)
  emit load_seconds "$(($(date +%s) - started))"
}

main </dev/null
