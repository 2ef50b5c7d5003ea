# shellcheck shell=bash
# Is this node in order? Reads only.
: "${NODE:?}" "${GPUS:?}"
DEVICES=${DEVICES-}

main() {
  command -v docker >/dev/null ||
    fail "$NODE: no docker on the PATH of a non-interactive SSH session ($PATH); install Docker there."
  local server
  server=$(docker version --format '{{.Server.Version}} {{.Server.Arch}}' 2>&1) ||
    fail "$NODE: $(id -un) cannot use Docker: ${server##*$'\n'} (try: sudo usermod -aG docker $(id -un))"
  local device
  while IFS= read -r device; do
    [[ -z $device || -e $device ]] ||
      fail "$NODE: $device is missing, so NCCL would fall back to TCP; load the driver, or take it out of container.devices."
  done <<<"$DEVICES"
  if [[ $GPUS == all ]]; then
    docker info --format '{{json .Runtimes}}' | holds '"nvidia' || command -v nvidia-container-runtime-hook >/dev/null ||
      command -v nvidia-container-runtime >/dev/null ||
      fail "$NODE: Docker has no NVIDIA runtime, so --gpus would fail; install nvidia-container-toolkit."
  fi
  emit docker "${server% *}"
  emit arch "${server#* }"
  emit kernel "$(uname -r)"
  emit memory_total_kib "$(awk '/^MemTotal:/ {print $2}' /proc/meminfo)"
  emit memory_available_kib "$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)"
  if command -v nvidia-smi >/dev/null; then
    emit driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | sed -n 1p)"
  fi
}

main </dev/null
