# shellcheck shell=bash
# What this node is like, for the doctor to judge. Reads only.
# RAILS: "interface rdma-device" a line, below SYSFS. PORTS: numbers. PATHS: directories whose disk matters, "what path" a line. MODEL: the model's directory. TAG: the image.
: "${NODE:?}" "${PROJECT:?}" "${STACK:?}" "${PORTS?}" "${PATHS?}" "${MODEL:?}" "${TAG:?}" "${RAILS?}" "${SYSFS:?}"

docker_facts() {
  local server
  if ! server=$(timeout 20 docker version --format '{{.Server.Version}}' 2>&1); then
    emit docker_fault "$(tail -n 1 <<<"$server")"
    return
  fi
  emit docker "$server"
  emit image_store "$(image_store)"
  if has_nvidia_runtime; then emit runtime nvidia; fi
  emit image "$(image_identity "$TAG")"
  if docker image inspect "$TAG" >/dev/null 2>&1; then emit image_there yes; fi
  our_containers
  strangers
}

# containers of others that hold the GPU
strangers() {
  docker ps -q --no-trunc |
    xargs -r docker inspect --format '{{slice .Name 1}} {{index .Config.Labels "spark-vllm.project"}}/{{index .Config.Labels "spark-vllm.stack"}} {{.HostConfig.Runtime}} {{json .HostConfig.DeviceRequests}}' |
    awk -v ours="$PROJECT/$STACK" '$2 != ours && ($3 == "nvidia" || $4 ~ /gpu/) {print "gpu_stranger=" $1}'
}

listeners() {
  local port
  for port in $1; do
    [[ -z $(ss -Hltn "sport = :$port") ]] || emit port_taken "$port"
  done
}

# what each RDMA device says of its port, such as "200 Gb/sec (4X HDR)"
speeds() {
  local interface device rate
  while read -r interface device; do
    rate=$SYSFS/class/infiniband/$device/ports/1/rate
    [[ -z $interface || ! -r $rate ]] || emit "speed_$interface" "$(cut -d' ' -f1 "$rate")"
  done <<<"$RAILS"
}

disks() {
  local what path there
  while read -r what path; do
    [[ -n $what ]] || continue
    there=$path
    while [[ ! -d $there ]]; do there=${there%/*} && there=${there:-/}; done
    emit disk "$what $(df -B1 --output=avail,size "$there" | tail -n 1 | tr -s ' ' | sed 's/^ //') $path"
  done <<<"$PATHS"
}

main() {
  emit user "$(id -un)"
  emit kernel "$(uname -r)"
  emit arch "$(uname -m)"
  emit clock "$(date +%s.%N)"
  emit memlock "$(ulimit -H -l)"
  if sudo -n /usr/bin/bash -c true 2>/dev/null; then emit sudo yes; fi
  emit ntp "$(timedatectl show --property=NTPSynchronized --value 2>/dev/null || true)"
  emit driver "$(gpu driver_version)"
  emit memory_total_kib "$(memory_kib MemTotal)"
  emit memory_available_kib "$(memory_kib MemAvailable)"
  emit page_cache_kib "$(memory_kib Cached)"
  if command -v docker >/dev/null; then docker_facts; else emit docker_fault 'no docker on the PATH of an SSH session'; fi
  disks
  speeds
  listeners "$PORTS"
  if [[ -d $MODEL ]]; then
    emit model "$(cd "$MODEL" && find -L . -type f -not -path '*/.*' -printf '%P %s\n' | sort | sha256sum | cut -c1-12)"
  fi
}

main </dev/null
