# shellcheck shell=bash
# Is all that this node's new containers need in place, before any old one is stopped? Reads only.
# NAMES: container names, one a line. PORTS: "port what" lines that must be free, or held by ours.
: "${NODE:?}" "${TAG:?}" "${NAMES:?}" "${PORTS?}" "${PROJECT:?}" "${STACK:?}"

owner_of() { docker inspect --format '{{index .Config.Labels "spark-vllm.project"}}/{{index .Config.Labels "spark-vllm.stack"}}' "$1" 2>/dev/null; }

ours_is_running() {
  [[ -n $(docker ps -q --filter "label=spark-vllm.project=$PROJECT" --filter "label=spark-vllm.stack=$STACK") ]]
}

main() {
  docker image inspect "$TAG" >/dev/null 2>&1 || fail "$NODE: the image $TAG is gone; bring it back with: pulumi up --replace '**::image-$NODE'."
  local name owner port what
  while IFS= read -r name; do
    owner=$(owner_of "$name") || continue
    [[ $owner == "$PROJECT/$STACK" ]] ||
      fail "$NODE: a container named $name is there and belongs to ${owner/#\//no one we know}; remove or rename it: docker rm -f $name."
  done <<<"$NAMES"
  while read -r port what; do
    [[ -n $port ]] || continue
    if [[ -n $(ss -Hltn "sport = :$port") ]] && ! ours_is_running; then
      fail "$NODE: port $port ($what) is taken by another program ($(ss -Hltnp "sport = :$port" | grep -o 'users:.*' || echo 'sudo ss -ltnp shows which')); stop it, or choose another port."
    fi
  done <<<"$PORTS"
  emit stop ok
}

main </dev/null
