#!/usr/bin/env bash
# Gets in the way as the entrypoint of the pair's image does: serves what its environment says, whatever the arguments.
exec vllm serve "${MODEL_PATH:-/models/model}" \
  --port "${PORT:-8000}" \
  --gpu-memory-utilization "${GPU_MEMORY_UTIL:-0.85}" \
  --max-model-len "${MAX_MODEL_LEN:-1048576}" \
  --tool-call-parser "${TOOL_CALL_PARSER:-qwen3_coder}" \
  --reasoning-parser "${REASONING_PARSER:-qwen3}"
