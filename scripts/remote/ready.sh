# shellcheck shell=bash
# On the head: wait until the server has loaded the model and answers; stop at once when it dies.
: "${NODE:?}" "${CONTAINER:?}" "${URL:?}" "${WAIT:?}"

state() { docker inspect --format '{{.State.Status}} {{.State.ExitCode}} {{.RestartCount}}' "$CONTAINER" 2>/dev/null || echo 'gone 0 0'; }

died() {
  say "$NODE: $CONTAINER $1. The first error in its log, and its end:"
  docker logs "$CONTAINER" 2>&1 | first_error >&2 || true
  exit 1
}

main() {
  local status code restarts seen='' line
  while :; do
    read -r status code restarts < <(state)
    [[ $status == running || $status == restarting ]] || died "is $status (exit status $code)"
    ((restarts == 0)) || died "has ended and was started again by Docker"
    if curl -fsS -o /dev/null --max-time 5 "$URL/health" 2>/dev/null; then
      break
    fi
    ((SECONDS < WAIT)) || died "did not answer within $WAIT s (vllm.readyTimeout)"
    line=$(docker logs --tail 1 "$CONTAINER" 2>&1 | tr '\r' '\n' | tail -n 1 | cut -c1-160)
    if [[ $line != "$seen" ]]; then
      seen=$line
      say "${SECONDS}s $line"
    else
      every 15 "${SECONDS}s still loading"
    fi
    sleep 0.5
  done
  local started
  started=$(date -d "$(docker inspect --format '{{.State.StartedAt}}' "$CONTAINER")" +%s)
  emit load_seconds "$(($(date +%s) - started))"
}

main </dev/null
