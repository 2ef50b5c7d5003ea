# shellcheck shell=bash
# our_containers: the stack's containers on this node, a line each
our_containers() {
  docker ps -aq --no-trunc --filter "label=spark-vllm.project=$PROJECT" --filter "label=spark-vllm.stack=$STACK" |
    xargs -r docker inspect --format 'container={{.Id}} {{slice .Name 1}} {{.State.Status}} {{.State.ExitCode}} {{.RestartCount}} {{.State.OOMKilled}} {{.State.StartedAt}} {{.State.FinishedAt}}'
}
