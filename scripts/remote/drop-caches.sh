# shellcheck shell=bash
# Before a load: GPU and CPU share one memory, and what the page cache holds counts as taken,
# https://docs.nvidia.com/dgx/dgx-spark/known-issues.html. The server has just been started, and reads no weights yet.
: "${NODE:?}"

main() {
  if sync && sudo -n bash -c 'echo 3 >/proc/sys/vm/drop_caches' 2>/dev/null; then
    emit page_cache dropped
  else
    say "$NODE: the page cache stays, since sudo asks for a password: the server may find too little memory free."
    emit page_cache kept
  fi
}

main </dev/null
