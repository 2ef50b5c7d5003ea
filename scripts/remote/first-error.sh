# shellcheck shell=bash
# The first error of a container's log, and its end. Reads only.
: "${CONTAINER:?}"

main() {
  docker logs "$CONTAINER" 2>&1 | first_error
}

main </dev/null
