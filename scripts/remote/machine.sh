# shellcheck shell=bash
# What a node is made of, where several scripts ask it.

has_nvidia_runtime() {
  docker info --format '{{json .Runtimes}}' | holds '"nvidia' || command -v nvidia-container-runtime-hook >/dev/null ||
    command -v nvidia-container-runtime >/dev/null
}

# overlay2, or overlayfs where containerd keeps the images
image_store() { docker info --format '{{.Driver}}'; }

# gpu PROPERTY: what nvidia-smi says of the first GPU, such as driver_version; nothing where there is none
gpu() {
  ! command -v nvidia-smi >/dev/null ||
    timeout 20 nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | sed -n 1p || true
}

memory_kib() { awk -v key="$1:" '$1 == key {print $2}' "${MEMINFO:-/proc/meminfo}"; }
