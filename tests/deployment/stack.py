"""What the lab's tests do with a deployment: change its settings, look at its containers, ask its API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from ruamel.yaml import YAML

from lab.deployment import Deployment, Run
from lab.environment import environment
from lab.instance import Lab

CONTAINER = "docker:index/container:Container"
Config = dict[str, Any]
Edit = Callable[[Config], None]
_YAML = YAML()


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
    found = {}
    for node in deployment.lab.status()["nodes"]:
        ids = deployment.lab.docker(
            node, "ps", "-aq", "--no-trunc", "--filter", "label=spark-vllm.project"
        ).split()
        for each in json.loads(deployment.lab.docker(node, "inspect", *ids)) if ids else []:
            found[each["Name"].lstrip("/")] = (each["Id"], each["State"]["StartedAt"])
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


def unchanged(deployment: Deployment) -> None:
    """Assert that neither the program nor the nodes differ from the state."""
    for options in ((), ("--refresh",)):
        run = deployment.pulumi("preview", "--expect-no-changes", *options)
        assert run.status == 0, run.output


def ask(deployment: Deployment, *, key: str | None = None) -> httpx.Response:
    """Ask the API for a completion, as the operator does."""
    return httpx.post(
        f"{deployment.output('endpoint')}/chat/completions",
        json={
            "model": deployment.output("model"),
            "max_tokens": 8,
            "messages": [{"role": "user", "content": "Say hello."}],
        },
        headers={"Authorization": f"Bearer {key or deployment.api_key()}"},
        timeout=120,
    )
