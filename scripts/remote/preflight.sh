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
    has_nvidia_runtime ||
      fail "$NODE: Docker has no NVIDIA runtime, so --gpus would fail; install nvidia-container-toolkit."
  fi
  emit docker "${server% *}"
  emit arch "${server#* }"
  emit kernel "$(uname -r)"
  emit memory_total_kib "$(memory_kib MemTotal)"
  emit memory_available_kib "$(memory_kib MemAvailable)"
  emit driver "$(gpu driver_version)"
}

main </dev/null
