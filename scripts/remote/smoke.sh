# shellcheck shell=bash
# On the head: does the server answer an authenticated chat completion? /health and /v1/models do not tell.
: "${NODE:?}" "${URL:?}" "${MODEL_JSON:?}" "${WAIT:?}" "${CONTAINER:?}"
API_KEY=${API_KEY-}

ask() {
  curl -sS --max-time "$WAIT" -H @- -H 'Content-Type: application/json' \
    -w '\n%{http_code}' --data "$1" "$URL/v1/chat/completions" \
    <<<"${API_KEY:+Authorization: Bearer $API_KEY}"
}

main() {
  local answer code body
  answer=$(ask "{\"model\": $MODEL_JSON, \"max_tokens\": 16, \"messages\": [{\"role\": \"user\", \"content\": \"Say hello.\"}]}" 2>&1) || {
    say "$NODE: the server gave no completion within $WAIT s: ${answer%%$'\n'*}"
    docker logs "$CONTAINER" 2>&1 | first_error >&2 || true
    exit 1
  }
  code=${answer##*$'\n'}
  body=${answer%$'\n'*}
  if [[ $code != 200 ]]; then
    say "$NODE: a chat completion was answered with HTTP $code: ${body:0:400}"
    docker logs "$CONTAINER" 2>&1 | first_error >&2 || true
    exit 1
  fi
  grep -qE '"(content|reasoning|reasoning_content)": ?"[^"]' <<<"$body" ||
    fail "$NODE: the completion holds neither content nor reasoning: ${body:0:400}"
  emit completion ok
}

main </dev/null
