# shellcheck shell=bash
# On the head: one measurement by the image's own `vllm bench serve`, in the server's container. Prints result=JSON.
# INPUT, OUTPUT: tokens of a prompt and of an answer. PROMPTS: how many, at most CONCURRENCY of them at a time.
: "${NODE:?}" "${CONTAINER:?}" "${URL:?}" "${MODEL:?}" "${SERVED:?}" "${INPUT:?}" "${OUTPUT:?}" "${PROMPTS:?}"
: "${CONCURRENCY:?}" "${SEED:?}" "${WAIT:?}"

# The key stands in no list of processes: the client takes it from its environment.
# shellcheck disable=SC2016
CLIENT='
set -euo pipefail
folder=$(mktemp -d)
trap "rm -rf \"$folder\"" EXIT
[[ ! -s /spark/api-key ]] || OPENAI_API_KEY=$(</spark/api-key)
export OPENAI_API_KEY=${OPENAI_API_KEY:-none}
wait=$1
shift
timeout -k 10 "$wait" vllm bench serve "$@" --save-result --result-dir "$folder" --result-filename result.json >&2
cat "$folder/result.json"
'

main() {
  local result
  docker exec "$CONTAINER" true 2>/dev/null || fail "$NODE: $CONTAINER does not run; \`spark-vllm status\` says how it is."
  result=$(docker exec "$CONTAINER" bash -c "$CLIENT" _ "$WAIT" \
    --base-url "$URL" --model "$MODEL" --served-model-name "$SERVED" --dataset-name random --ignore-eos \
    --random-input-len "$INPUT" --random-output-len "$OUTPUT" --num-prompts "$PROMPTS" \
    --max-concurrency "$CONCURRENCY" --seed "$SEED" \
    --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 90,99) ||
    fail "$NODE: the image's \`vllm bench serve\` failed or took longer than $WAIT s; its words stand above."
  emit result "$(tr -d '\n' <<<"$result")"
}

main </dev/null
