#!/bin/bash
# Process 1 of every container: entry.sh ROLE COMMAND...
# Turns Docker's on-failure policy into a bounded recovery: every end counts as a failure, whatever its
# status, until SPARK_ATTEMPTS starts in a row have failed; then it says so and ends with status 0.
set -euo pipefail

role=$1
shift
attempts_file=/spark/attempts
patience=20

say() { printf 'spark-vllm: %s\n' "$*" >&2; }

# Ray reads its token's file by itself; vLLM takes its key from the environment only.
read_secrets() {
  [[ ! -s /spark/api-key ]] || VLLM_API_KEY=$(</spark/api-key)
  export VLLM_API_KEY
}

# Names the life of this machine: a reboot is a new chance. The second part tells simulated nodes apart.
boot() { printf '%s-%s' "$(cat /proc/sys/kernel/random/boot_id)" "$(cut -d' ' -f22 /proc/1/stat)"; }

read_attempts() {
  local known=
  count=0
  [[ ! -f $attempts_file ]] || read -r known count <"$attempts_file"
  [[ $known == "$(boot)" ]] || count=0
}

write_attempts() { printf '%s %s\n' "$(boot)" "$1" >"$attempts_file"; }

wait_for_port() {
  local host=${1%:*} port=${1##*:} waited=0
  # a packet that is lost without a word must not keep a stop waiting
  # shellcheck disable=SC2016
  until timeout 2 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$host" "$port" 2>/dev/null; do
    ((waited % 15)) || say "waiting for $1"
    sleep 1
    waited=$((waited + 1))
  done
}

wait_for_ray() {
  wait_for_port "$RAY_ADDRESS"
  python3 /spark/ray_nodes.py --address "$RAY_ADDRESS" --expect "$SPARK_RAY_NODES" --stable 1 --timeout 600 &
  wait "$!" || {
    say "not all Ray nodes are there yet; Docker starts this container again"
    exit 75
  }
}

# Under mp every rank holds on to the others, from before its start to its end.
wait_for_ranks() {
  rm -f /spark/together
  python3 /spark/ranks.py &
  lifeline=$!
  until [[ -e /spark/together ]]; do
    kill -0 "$lifeline" 2>/dev/null || exit 75
    sleep 0.2
  done
}

wait_for_peers() {
  [[ -z ${SPARK_WAIT_FOR-} ]] || wait_for_port "$SPARK_WAIT_FOR"
  [[ -z ${SPARK_RAY_NODES-} ]] || wait_for_ray
  [[ -z ${SPARK_RANKS-} ]] || wait_for_ranks
}

clear_leftovers() {
  case $role in
    # The first container of its node: /tmp is its own, and what lies there belonged to the dead.
    ray) find /tmp -mindepth 1 -delete 2>/dev/null || true ;;
    # So is this one, but while Ray is left for mp its head is the last to go.
    rank) find /tmp -mindepth 1 -maxdepth 1 ! -name ray -exec rm -rf {} + 2>/dev/null || true ;;
    # Shares /tmp with Ray; only vLLM's own sockets, named by UUID, are left by an earlier server.
    *) find /tmp -maxdepth 1 -type s -name '????????-????-????-????-????????????' -delete 2>/dev/null || true ;;
  esac
}

# A server that has lost a rank may not end by itself.
end_without_the_others() {
  kill -TERM "$child" 2>/dev/null || true
  {
    sleep "$patience"
    kill -KILL "$child" 2>/dev/null || true
  } </dev/null >/dev/null 2>&1 &
}

read_attempts
if ((count >= SPARK_ATTEMPTS)); then
  say "gave up: $count starts in a row have failed; read the log above, then 'pulumi up --refresh'"
  exit 0
fi
read_secrets
child=
lifeline=
alone=
stopped=
# What is waited for ends with a stop at once; vLLM and Ray are told, and waited for.
stop() {
  stopped=1
  case $child in
    '') exit 143 ;;
    starting) ;;
    *) kill -TERM "$child" 2>/dev/null || true ;;
  esac
}
trap stop TERM INT
clear_leftovers
wait_for_peers

count=$((count + 1))
write_attempts "$count"
say "start $count of $SPARK_ATTEMPTS: $role"
(
  sleep "$SPARK_HEALTHY_AFTER"
  write_attempts 0
) </dev/null >/dev/null 2>&1 &
child=starting
"$@" &
child=$!
# a stop that came before its number was known
[[ -z $stopped ]] || stop
status=0
while :; do
  status=0
  wait -n "$child" ${lifeline:+"$lifeline"} || status=$?
  kill -0 "$child" 2>/dev/null || break
  if [[ -n $lifeline ]] && ! kill -0 "$lifeline" 2>/dev/null; then
    lifeline=
    alone=1
    end_without_the_others
  fi
done
[[ -z $lifeline ]] || kill "$lifeline" 2>/dev/null || true
if [[ -n $stopped ]]; then
  # a start that was stopped has not failed
  read_attempts
  ((count == 0)) || write_attempts "$((count - 1))"
  exit 143
fi
if [[ -n $alone ]]; then
  say "$role was stopped: it cannot go on without the others"
else
  say "$role ended with status $status"
fi
((status != 0)) || status=1
exit "$status"
