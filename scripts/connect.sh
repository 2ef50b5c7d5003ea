# shellcheck shell=bash
# On the operator's machine: ssh's way to a node, as its ProxyCommand with host and port.
# An sshd whose MaxStartups are reached hangs up before it says who it is, and ssh takes that for the end.
host=$1 port=$2 greeting=
for _ in {1..40}; do
  exec 3<>"/dev/tcp/$host/$port" || exit 1
  IFS= read -r greeting <&3 || true
  [[ $greeting != SSH-* ]] || break
  sleep "0.$((RANDOM / 90 + 10))"
done
if [[ $greeting != SSH-* ]]; then
  echo "$host port $port hangs up: is that an SSH server, and does it let enough in at a time (MaxStartups)?" >&2
  exit 1
fi
echo "$greeting"
cat <&3 &
trap 'kill "$!" 2>/dev/null' EXIT
trap 'exit 1' HUP TERM
cat >&3
