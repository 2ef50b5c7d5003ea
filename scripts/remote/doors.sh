# shellcheck shell=bash
# On a worker: the line of authorized_keys that lets the head's KEY in, and the receiver that it may start.
AUTHORIZED=$HOME/.ssh/authorized_keys
RECEIVERS=$HOME/.local/share/spark-vllm

# receiver_of NODE: its file
receiver_of() { printf '%s/%s-%s.sh' "$RECEIVERS" "$KEY" "$1"; }

# set_door NODE [LINE]: the line of that name is as given, or goes; all others stay
set_door() {
  # Named by the node too: a machine that was renamed is both for a while, the new before the old one goes.
  local mark=$KEY/$1 lines
  install -d -m 700 "$HOME/.ssh"
  touch "$AUTHORIZED"
  chmod 600 "$AUTHORIZED"
  lines=$(awk -v mark="$mark" '$NF != mark' "$AUTHORIZED")
  [[ -z ${2-} ]] || lines+=${lines:+$'\n'}"$2 $mark"
  printf '%s%s' "$lines" "${lines:+$'\n'}" >"$AUTHORIZED.$KEY"
  chmod 600 "$AUTHORIZED.$KEY"
  mv "$AUTHORIZED.$KEY" "$AUTHORIZED"
}

# close_door NODE: without a receiver left behind
close_door() {
  rm -f "$(receiver_of "$1")"
  set_door "$1"
}
