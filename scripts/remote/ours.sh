# shellcheck shell=bash
# The containers of one stack on this node.
: "${NODE:?}" "${PROJECT:?}" "${STACK:?}"

our_containers </dev/null || fail "$NODE: Docker does not answer: $(docker version 2>&1 | tail -n 1)"
