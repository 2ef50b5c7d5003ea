# shellcheck shell=bash
# Would the new server's arguments be accepted by the new image's own vLLM? Runs beside the old server.
# ENV_NAME: the variables of the server's environment. TOKEN: whether Ray is to ask for one. REQUIRED: whether too
# little memory for the check is a refusal.
: "${NODE:?}" "${TAG:?}" "${CHECK:?}" "${REQUEST:?}" "${EXECUTOR:?}" "${GPUS:?}" "${MODELS:?}" "${DIRECTORY:?}"
: "${CACHE_VOLUME:?}" "${ENGINE:?}" "${LABELS?}" "${MIN_FREE_MIB:?}" "${NAME:?}" "${PRESENT:?}" "${TOKEN:?}" "${REQUIRED:?}"

# The check takes seconds to minutes of imports: what has passed once for the same image, arguments and
# model is not asked again, so the second gate costs nothing where the first could do all.
stamp_file() {
  local key variable
  key=$({
    docker image inspect --format '{{.Id}}' "$TAG"
    printf '%s\n' "$REQUEST" "$CHECK"
    for variable in $(compgen -v ENV_); do printf '%s=%s\n' "$variable" "${!variable}"; done
    sha256sum "$DIRECTORY/config.json"
  } | sha256sum)
  printf '%s/spark-vllm/checked-%s' "${XDG_CACHE_HOME:-$HOME/.cache}" "${key:0:16}"
}

waiting() { echo "$NODE: asking the image's own vLLM about the arguments"; }

ask() {
  printf '{"args": %s, "depth": "%s"}' "$REQUEST" "$1" |
    timeout -k 10 "$CHECK_TIMEOUT" docker run --rm -i --name "$NAME" "${labels[@]}" "${gpus[@]}" \
      --network none --memory 8g --cpu-shares 128 --user 0:0 --security-opt no-new-privileges \
      "${models[@]}" -v "$CACHE_VOLUME:/cache" \
      "${env[@]}" \
      --entrypoint python3 "$TAG" -c "$CHECK" >"$output" 2>"$words"
}

check() {
  local -a labels=() gpus=() env=() models=()
  local label variable status=0
  for variable in $(compgen -v ENV_); do
    env+=(-e "${variable#ENV_}=${!variable}")
  done
  while IFS= read -r label; do
    [[ -z $label ]] || labels+=(--label "$label")
  done <<<"$LABELS"
  [[ $GPUS == none ]] || gpus=(--gpus all)
  # Docker would make what is not there yet, and for root.
  [[ ! -d $MODELS ]] || models=(-v "$MODELS:/models:ro")
  docker rm -f "$NAME" >/dev/null 2>&1 || true
  meanwhile waiting ask "$1" || status=$?
  case $status in
    0) ;;
    2) fail "vLLM refuses the arguments, and nothing was stopped: $(tail -n 12 "$words")" ;;
    124 | 137)
      docker rm -f "$NAME" >/dev/null 2>&1 || true
      fail "$NODE: the argument check did not end within $CHECK_TIMEOUT s, or ran out of memory; nothing was stopped."
      ;;
    *) fail "$NODE: the argument check could not run in $TAG (status $status), and nothing was stopped: $(tail -n 12 "$words")" ;;
  esac
  cat "$output"
}

# fits OUTPUT: is the image's Ray there, and does it know what it is asked for?
fits() {
  local ray
  [[ $EXECUTOR == ray ]] || return 0
  ray=$(sed -n 's/^ray=//p' "$1")
  [[ $ray != none ]] ||
    fail "$TAG holds no Ray, and vllm.executor is ray: set vllm.executor to mp, or take an image with Ray. Nothing was stopped."
  # https://docs.ray.io/en/latest/ray-security/token-auth.html
  if [[ $TOKEN == true && $ray == [0-9]* && $(printf '%s\n' 2.52 "$ray" | sort -V | sed -n 1p) != 2.52 ]]; then
    fail "$TAG holds Ray $ray, which knows no tokens (2.52 does), so whoever reaches a node could run programs in it: take a newer image, or accept that with \`pulumi config rm rayToken\`. Nothing was stopped."
  fi
}

main() {
  local free stamp='' depth=arguments
  output=$(mktemp)
  words=$(mktemp)
  trap 'rm -f "$output" "$words" "$output.passed"' EXIT
  CHECK_TIMEOUT=${CHECK_TIMEOUT:-300}
  # The first gate comes before the model's files; where they are there already it checks all at once.
  if [[ $ENGINE == true || -s $PRESENT ]]; then
    depth=engine
    stamp=$(stamp_file)
    if [[ -f $stamp ]]; then
      say "$NODE: the same arguments, image and model have passed before"
      fits "$stamp"
      cat "$stamp"
      return
    fi
  fi
  free=$(($(memory_kib MemAvailable) / 1024))
  if ((free < MIN_FREE_MIB)); then
    [[ $REQUIRED == false ]] ||
      fail "$NODE has $free MiB of memory free, and the check of the arguments needs $MIN_FREE_MIB (vllm.requireArgumentCheck); nothing was stopped."
    say "warning: $NODE has $free MiB of memory free, less than $MIN_FREE_MIB: the arguments are not checked"
    depth=versions
    stamp=
  fi
  check "$depth" | tee "$output.passed"
  fits "$output.passed"
  if [[ -n $stamp ]]; then
    mkdir -p "${stamp%/*}"
    mv "$output.passed" "$stamp"
  fi
}

main </dev/null
