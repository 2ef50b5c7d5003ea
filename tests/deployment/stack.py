"""What the lab's tests do with a deployment: change its settings, look at its containers, ask its API."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from lab.deployment import Deployment, Run
from lab.environment import environment
from lab.instance import Lab

CONTAINER = "docker:index/container:Container"
COMMAND = "command:remote:Command"
Config = dict[str, Any]
Edit = Callable[[Config], None]
Waves = Sequence[str | set[str]]
"""Steps in their order; those of a set come side by side."""
_settled: dict[Path, tuple[str, dict[str, tuple[str, str]]]] = {}
"""The stack files whose deployments are as they say: what they said, and the containers."""
_opened: dict[str, str] = {}
"""API keys by what stands for them in a stack file."""
_YAML = YAML()

ALL_OF_RAY = ["delete vllm", "delete worker", "delete head", "create head", "create worker", "create vllm"]
WORKER_AND_VLLM = ["delete vllm", "delete worker", "create worker", "create vllm"]
VLLM = ["delete vllm", "create vllm"]
SERVER = pytest.mark.row("a vLLM flag, served name, parser, API key, serve-only env", "vllm")
WORKER = pytest.mark.row("env or flag of one Ray worker", "that worker, vllm")
HEAD = pytest.mark.row("env or flag of the Ray head, Ray port, Ray token", "all of Ray, vllm")
RANKS = pytest.mark.row("under mp: any of the above", "all ranks, together")
CREDENTIALS = pytest.mark.row(
    "hub token, registry password",
    "no container; the steps that use them show as updated, and run nothing",
)
DEAD_WORKER = pytest.mark.row("a worker's container died (`up --refresh`)", "that worker, vllm")
TURNS = 5
"""How often in a row the order of what restarts is looked at: it must not be a matter of luck."""
_counter = itertools.count(1)


def stack_on(lab: Lab, place: Path, stack: str = "test") -> Deployment:
    """A stack with a state and a stack file of its own; no two on one clone may have the same name."""
    own = {"PULUMI_BACKEND_URL": f"file://{place}", "PULUMI_CONFIG_PASSPHRASE": "of no importance"}
    return Deployment(lab, stack, environment(lab) | own, place / f"Pulumi.{stack}.yaml", place)


def edit(deployment: Deployment, change: Edit) -> None:
    """Change the stack file; keys are given without the project's name."""
    document = _YAML.load(deployment.config_file)
    config = document["config"]
    view = {key.removeprefix("spark-vllm:"): value for key, value in config.items()}
    change(view)
    for key, value in view.items():
        name = key if ":" in key else f"spark-vllm:{key}"
        config[name] = value
    for key in [key for key in config if key.removeprefix("spark-vllm:") not in view]:
        del config[key]
    _YAML.dump(document, deployment.config_file)


def containers(deployment: Deployment) -> dict[str, tuple[str, str]]:
    """Id and start time of each of our containers, by name."""
    inspect = (
        "set -o pipefail; docker ps -aq --no-trunc --filter label=spark-vllm.project | "
        "xargs -r docker inspect --format '{{.Name}} {{.Id}} {{.State.StartedAt}}'"
    )
    found = {}
    for node in deployment.lab.status()["nodes"]:
        for line in deployment.lab.root(node, "bash", "-c", inspect).splitlines():
            name, number, started = line.split()
            found[name.lstrip("/")] = (number, started)
    return found


def replaced(run: Run) -> list[str]:
    """What happened to containers, in order: `delete x` and `create x`."""
    words = {
        "delete-replaced": "delete",
        "create-replacement": "create",
        "delete": "delete",
        "create": "create",
    }
    return [
        f"{words[event.op]} {event.name}"
        for event in run.events
        if event.type == CONTAINER and event.op in words
    ]


def settle(deployment: Deployment) -> Deployment:
    """Bring a stack up as its file says, unless a test has left it so and no other has touched it since."""
    if _settled.get(deployment.config_file) != _look(deployment):
        deployment.must("up", "--refresh")
        _settled[deployment.config_file] = _look(deployment)
    return deployment


def _look(deployment: Deployment) -> tuple[str, dict[str, tuple[str, str]]]:
    return deployment.config_file.read_text(), containers(deployment)


def restarts(
    deployment: Deployment,
    change: Callable[[Deployment], None],
    expected: Waves,
    *,
    refresh: bool = False,
    previews: bool = True,
) -> Run:
    """Change something and bring the stack up: exactly what is expected is replaced, and preview said so.

    Args:
        deployment: A stack that is up.
        change: Of its file, a secret or a node.
        expected: What happens to containers.
        refresh: Whether the nodes are looked at, as drift needs it.
        previews: Whether one is asked beforehand, and another afterwards, which must show no change.

    Returns:
        What `up` did.
    """
    options = ("--refresh",) if refresh else ()
    before = containers(deployment)
    _settled.pop(deployment.config_file, None)
    change(deployment)
    previewed = replaced(deployment.must("preview", *options)) if previews else None
    run = deployment.must("up", *options)
    steps = replaced(run)
    assert_waves(steps, expected)
    assert previewed is None or sorted(previewed) == sorted(steps), "preview has said something else"
    after = containers(deployment)
    touched = {step.partition(" ")[2] for step in steps}
    created = {step.removeprefix("create ") for step in steps if step.startswith("create ")}
    kept = {name for name in before if logical(name) not in touched}
    assert {name: after.get(name) for name in kept} == {name: before[name] for name in kept}
    assert {logical(name) for name in after if name not in kept} == created
    assert not {facts for name, facts in after.items() if name not in kept} & set(before.values())
    if previews:
        settled(deployment, *options)
    _settled[deployment.config_file] = (deployment.config_file.read_text(), after)
    return run


def each_restarts(
    deployment: Deployment, changes: Mapping[str, Callable[[Deployment], None]], expected: Waves
) -> None:
    """Change several things: each alone would replace what is expected, and all of them together do.

    Args:
        deployment: A stack that is up.
        changes: Of its file or a secret, by name.
        expected: What happens to containers.
    """
    steps = sorted(itertools.chain.from_iterable(map(_side_by_side, expected)))
    for name, change in changes.items():
        assert sorted(foreseen(deployment, change)) == steps, name

    def all_of_them(deployment: Deployment) -> None:
        for change in changes.values():
            change(deployment)

    restarts(deployment, all_of_them, expected, previews=False)
    settled(deployment)


def foreseen(deployment: Deployment, change: Callable[[Deployment], None]) -> list[str]:
    """What a preview says of a change to the stack file, which is as before afterwards."""
    right = deployment.config_file.read_text()
    change(deployment)
    try:
        return replaced(deployment.must("preview"))
    finally:
        deployment.config_file.write_text(right)


def by(change: Edit) -> Callable[[Deployment], None]:
    """A change of the stack file."""
    return lambda deployment: edit(deployment, change)


def another_flag(config: Config) -> None:
    """Give one flag of vLLM another value."""
    args = config["vllm"].setdefault("args", {})
    args["max-num-seqs"] = 1 + args.get("max-num-seqs", 0)


def another_env(node: int) -> Edit:
    """Give one variable of a node another value."""

    def change(config: Config) -> None:
        config["nodes"][node]["env"] = {"NCCL_DEBUG": f"INFO{next(_counter)}"}

    return change


def another_secret(key: str) -> Callable[[Deployment], None]:
    """Give a secret another value."""
    return lambda deployment: deployment.set_secret(key, secrets.token_hex(24))


def killed(node: str, container: str) -> Callable[[Deployment], None]:
    """Kill a container on a node, past Pulumi."""

    def kill(deployment: Deployment) -> None:
        deployment.lab.docker(node, "kill", container)

    return kill


def logical(name: str) -> str:
    """A container's name in Pulumi: vllm, or that of its node."""
    return name.removeprefix("ray-").removeprefix("vllm-")


def assert_waves(steps: Sequence[str], expected: Waves) -> None:
    """Assert that steps came in the expected order."""
    rest = list(steps)
    for wave in expected:
        names = _side_by_side(wave)
        assert set(rest[: len(names)]) == names, (list(steps), expected)
        del rest[: len(names)]
    assert rest == [], (list(steps), expected)


def _side_by_side(wave: str | set[str]) -> set[str]:
    return {wave} if isinstance(wave, str) else wave


def position(run: Run, name: str, *ops: str) -> int:
    """Where among the events a container or a step was dealt with."""
    return next(
        place
        for place, event in enumerate(run.events)
        if event.name == name and event.op in ops and event.type in (CONTAINER, COMMAND)
    )


def settled(deployment: Deployment, *options: str) -> None:
    """Assert that another `up` would change nothing."""
    run = deployment.pulumi("preview", "--expect-no-changes", *options)
    assert run.status == 0, run.output


def unchanged(deployment: Deployment) -> None:
    """Assert that neither the program nor the nodes differ from the state."""
    settled(deployment, "--refresh")
    _settled[deployment.config_file] = _look(deployment)


def ask(deployment: Deployment, *, key: str | None = None) -> httpx.Response:
    """Ask the API for a completion, as the operator does."""
    outputs = deployment.outputs()
    return httpx.post(
        f"{outputs['endpoint']}/chat/completions",
        json={
            "model": outputs["model"],
            "max_tokens": 8,
            "messages": [{"role": "user", "content": "Say hello."}],
        },
        headers={"Authorization": f"Bearer {key or _api_key(deployment)}"},
        timeout=120,
    )


def answers(deployment: Deployment) -> bool:
    """Whether the API answers a completion."""
    try:
        return ask(deployment).status_code == 200
    except httpx.TransportError:
        return False


def _api_key(deployment: Deployment) -> str:
    """The API key; each sealed one is opened once, for opening takes longer than the question."""
    sealed = _YAML.load(deployment.config_file)["config"]["spark-vllm:apiKey"]["secure"]
    if sealed not in _opened:
        _opened[sealed] = deployment.api_key()
    return _opened[sealed]
