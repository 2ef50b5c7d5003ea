# shellcheck shell=bash
# A private registry.

# log_in: for this script alone, in memory; what the node's user is logged in to is neither used nor changed
log_in() {
  # one that was killed could not take its own away
  find /dev/shm -maxdepth 1 -user "$(id -un)" -name 'spark-vllm-login-*' -mmin +240 -exec rm -rf {} +
  DOCKER_CONFIG=$(mktemp -d -p /dev/shm spark-vllm-login-XXXXXX)
  export DOCKER_CONFIG
  trap 'rm -rf "$DOCKER_CONFIG"' EXIT
  docker login --username "$REGISTRY_USER" --password-stdin "$REGISTRY" <<<"$REGISTRY_PASSWORD" >/dev/null 2>"$DOCKER_CONFIG/said" || {
    grep -v '^WARNING' "$DOCKER_CONFIG/said" >&2
    fail "$NODE: $REGISTRY does not let $REGISTRY_USER in (image.registryUser, registryPassword); the line above says why."
  }
}
