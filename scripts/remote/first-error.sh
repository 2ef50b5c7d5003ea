# shellcheck shell=bash
# The first error of a container's log. Reads only.
: "${CONTAINER:?}"

main() {
  docker logs "$CONTAINER" 2>&1 | first_error | sed '/^--- last lines/,$d'
}

main </dev/null
