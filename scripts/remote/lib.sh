# shellcheck shell=bash
# Stands before every script of this folder. Words go to stderr, key=value to stdout.
set -euo pipefail
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export LC_ALL=C.UTF-8

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}
emit() { printf '%s=%s\n' "$1" "$2"; }

# holds GREP-ARGUMENTS...: grep -q that reads to the end. A writer whose reader has left counts as failed here
# (pipefail), so that what was found would pass for absent.
holds() { [[ $(grep -c "$@") -gt 0 ]]; }

# every SECONDS WORDS...: says the words, but not more often than that
every() {
  local interval=$1
  shift
  if ((SECONDS - ${_said_at:--1000} >= interval)); then
    _said_at=$SECONDS
    say "$*"
  fi
}

# meanwhile WORDS COMMAND...: runs it, and every few seconds says what WORDS, a command too, prints
meanwhile() {
  # the command sees these names, and must not find its own hidden
  local _tell=$1 _running _status=0
  shift
  "$@" <&0 &
  _running=$!
  while kill -0 "$_running" 2>/dev/null; do
    every 5 "$("$_tell")"
    sleep 0.2
  done
  wait "$_running" || _status=$?
  return "$_status"
}

# image_identity TAG: what may not differ between nodes, whatever image store each daemon uses
image_identity() {
  local content
  content=$(docker image inspect --format '{{json .RootFS.Layers}} {{json .Config.Env}} {{json .Config.Entrypoint}} {{json .Config.Cmd}} {{.Config.User}} {{.Config.WorkingDir}} {{.Architecture}}' "$1" 2>/dev/null) ||
    content=none
  sha256sum <<<"$content" | cut -c1-12
}

# first_error: the first line of a log on stdin that looks like the cause, else its last lines
first_error() {
  local log
  log=$(tail -n 400 | tail -c 60000)
  grep -m1 -E '(Error|Exception|error):|FATAL|Traceback|CUDA error|out of memory|gave up' <<<"$log" || true
  printf '%s\n' '--- last lines:'
  tail -n 15 <<<"$log"
}
