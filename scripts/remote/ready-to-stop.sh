# shellcheck shell=bash
# Is all that this node's new containers need in place, before any old one is stopped?
# NAMES: container names, one a line. PORTS: "port what" lines that must be free, or held by ours.
# ROLE: head or worker; the containers of a worker under its old name make room for the new, a head's go last.
# IDENTITY: of the image on the head, where this node has pulled its own.
# SHARE: of the unified memory that vLLM will take; empty without a GPU. GENERATION: why it is asked again.
: "${NODE:?}" "${ROLE:?}" "${TAG:?}" "${NAMES:?}" "${PORTS?}" "${PROJECT:?}" "${STACK:?}" "${SHARE?}" "${GENERATION:?}"
: "${IDENTITY?}"

owner_of() { docker inspect --format '{{index .Config.Labels "spark-vllm.project"}}/{{index .Config.Labels "spark-vllm.stack"}}' "$1" 2>/dev/null; }

ours() {
  docker ps "$@" --filter "label=spark-vllm.project=$PROJECT" --filter "label=spark-vllm.stack=$STACK"
}

# what is named spark-vllm-* only checks or fetches
ours_is_running() { ours --format '{{.Names}}' | holds -vE '^(spark-vllm-|$)'; }

# is_ours PORT WHAT: does one of our containers that run listen there? Ray's client is at its default.
is_ours() {
  if [[ $2 == "Ray's client" ]]; then
    ours_is_running
  else
    ours -q | xargs -r docker inspect --format '{{json .Args}} {{json .Config.Env}}' | holds -wF -- "$1"
  fi
}

# GPU and CPU share one memory: vLLM refuses to start on less than its share. What the page cache holds of it is
# given back by drop-caches.sh.
memory() {
  local total available wanted
  total=$(($(memory_kib MemTotal) / 1024))
  available=$(($(memory_kib MemAvailable) / 1024))
  wanted=$(awk -v total="$total" -v share="$SHARE" 'BEGIN {print int(total * share)}')
  # what ours hold is given back by their stop, and no tool tells how much of the unified memory it is
  ours_is_running || ((available >= wanted)) ||
    fail "$NODE: $available MiB of $total MiB are free, and vllm.gpuMemoryUtilization $SHARE takes $wanted MiB; stop what holds the rest (ps -eo rss,args --sort=-rss, nvidia-smi), or lower it."
}

main() {
  docker image inspect "$TAG" >/dev/null 2>&1 || fail "$NODE: the image $TAG is gone; bring it back with: pulumi up --replace '**::image-$NODE'."
  [[ -z $IDENTITY || $(image_identity "$TAG") == "$IDENTITY" ]] ||
    fail "$NODE: $TAG holds something else than on the head: are all nodes of one architecture? Bring it anew: pulumi up --replace '**::image-$NODE'."
  local name owner port what old
  while IFS= read -r name; do
    owner=$(owner_of "$name") || continue
    [[ $owner == "$PROJECT/$STACK" ]] ||
      fail "$NODE: a container named $name is there and belongs to ${owner/#\//no one we know}; remove or rename it: docker rm -f $name."
  done <<<"$NAMES"
  old=$(ours -a --format '{{.Label "spark-vllm.node"}}' | grep -vx -m1 "$NODE" || true)
  [[ $ROLE == worker || -z $old ]] ||
    fail "$NODE: the containers on this machine are those of a head named $old: keep the name $old, or take the deployment down first (pulumi destroy). Nothing was stopped."
  while read -r port what; do
    [[ -n $port ]] || continue
    if [[ -n $(ss -Hltn "sport = :$port") ]] && ! is_ours "$port" "$what"; then
      fail "$NODE: port $port ($what) is taken by another program ($(ss -Hltnp "sport = :$port" | grep -o 'users:.*' || echo 'sudo ss -ltnp shows which')); stop it, or choose another port."
    fi
  done <<<"$PORTS"
  [[ -z $SHARE ]] || memory
  emit stop ok
}

main </dev/null
