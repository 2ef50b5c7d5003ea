# shellcheck shell=bash
# On the head: does the server answer an authenticated chat completion, call a tool, tell its reasoning apart?
# /health and /v1/models do not tell.
: "${NODE:?}" "${URL:?}" "${MODEL_JSON:?}" "${WAIT:?}" "${LOAD:?}" "${CONTAINER:?}" "${REASONING_PARSER?}" "${TOOL_PARSER?}"
API_KEY=${API_KEY-}

HELLO='{"role": "user", "content": "Say hello."}'
WEATHER='{"role": "user", "content": "What is the weather in Oslo? Call the tool."}'
TOOLS='[{"type": "function", "function": {"name": "get_weather", "description": "Tells the weather of a city.",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]'

refuse() {
  say "$NODE: $1"
  docker logs "$CONTAINER" 2>&1 | first_error >&2 || true
  exit 1
}

# Since an earlier `up` saw it ready Docker may have started it again.
wait_until_loaded() {
  until curl -fsS -o /dev/null --max-time 5 "$URL/health" 2>/dev/null; do
    [[ $(docker inspect --format '{{.State.Running}}' "$CONTAINER" 2>/dev/null) == true ]] ||
      refuse "$CONTAINER is down. The first error in its log, and its end:"
    ((SECONDS < LOAD)) || refuse "$CONTAINER was not ready within $LOAD s (vllm.readyTimeout)"
    every 15 "$NODE: $CONTAINER is loading again"
    sleep 1
  done
}

# ask MESSAGE MAX_TOKENS [FIELD...]: sets body
ask() {
  local request="\"messages\": [$1], \"max_tokens\": $2" answer field
  for field in "${@:3}"; do request+=", $field"; done
  answer=$(curl -sS --max-time "$WAIT" -H @- -H 'Content-Type: application/json' -w '\n%{http_code}' \
    --data "{\"model\": $MODEL_JSON, $request}" "$URL/v1/chat/completions" \
    2>&1 <<<"${API_KEY:+Authorization: Bearer $API_KEY}") ||
    refuse "the server gave no completion within $WAIT s: ${answer%%$'\n'*}"
  body=${answer%$'\n'*}
  [[ ${answer##*$'\n'} == 200 ]] ||
    refuse "a chat completion was answered with HTTP ${answer##*$'\n'}: ${body:0:400}"
}

says() { grep -qE "$1" <<<"$body"; }

main() {
  local body
  wait_until_loaded
  # a model that thinks needs more than a few words until it answers
  ask "$HELLO" "$([[ -n $REASONING_PARSER ]] && echo 256 || echo 16)"
  says '"(content|reasoning|reasoning_content)": ?"[^"]' ||
    fail "$NODE: the completion holds neither content nor reasoning: ${body:0:400}"
  emit completion ok
  if [[ -n $REASONING_PARSER ]]; then
    ! says '"content": ?"[^"]*</?think>' ||
      fail "$NODE: reasoning stands in the answer itself: vllm.reasoningParser $REASONING_PARSER does not fit this model (${body:0:400})."
    if says '"reasoning(_content)?": ?"[^"]'; then emit reasoning ok; else emit reasoning none; fi
  fi
  if [[ -n $TOOL_PARSER ]]; then
    ask "$WEATHER" 512 "\"tools\": $TOOLS" '"tool_choice": "auto"'
    if says '"tool_calls": ?\[ ?\{'; then
      emit tool_call ok
    elif says '"content": ?"[^"]*<(tool_call|function=)'; then
      fail "$NODE: a tool call stands in the answer as text: vllm.toolCallParser $TOOL_PARSER does not fit this model (${body:0:400})."
    else
      say "$NODE: the model answered without calling the tool that it was given; whether calls are recognised is not known."
      emit tool_call none
    fi
  fi
}

main </dev/null
