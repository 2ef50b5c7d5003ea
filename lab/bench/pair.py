"""The deployment that is measured: a lab instance and a stack of the benchmark's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ruamel.yaml import YAML

from components.settings import PROJECT
from lab.deployment import Deployment
from lab.environment import LOCAL, environment
from lab.images import fake_model, stub
from lab.instance import Lab
from lab.outer import Outer
from lab.record import default_name

PLACE = LOCAL / "bench"
STACK = "bench"
_YAML = YAML()


@contextmanager
def instance(name: str, image: Callable[[Outer], str] | None = None) -> Iterator[Lab]:
    """Bring two nodes up for a part of the benchmark, and take them down.

    Args:
        name: Of the part.
        image: Makes one that the nodes have on their disks already, if such a disk is kept.
    """
    lab = Lab(f"{default_name()}-bench-{name}")
    if lab.folder.load() is not None:
        lab.down()
    lab.up(disk=image(lab.engine()) if image else None)
    try:
        yield lab
    finally:
        lab.down()


def stack_on(lab: Lab) -> Deployment:
    """A stack with a state and a stack file of its own, new."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    own = {"PULUMI_BACKEND_URL": f"file://{PLACE}", "PULUMI_CONFIG_PASSPHRASE": "of no importance"}
    return Deployment(lab, STACK, environment(lab) | own, PLACE / f"Pulumi.{STACK}.yaml", PLACE)


def stub_pair(lab: Lab) -> Deployment:
    """The stub image on both nodes, up."""
    pair = stack_on(lab)
    pair.put_model(fake_model())
    pair.configure(lab.push(stub(lab.outer)))
    pair.must("up")
    return pair


def change(deployment: Deployment, **sections: dict[str, Any]) -> None:
    """Change keys of sections of the stack file."""
    document = _YAML.load(deployment.config_file)
    for section, values in sections.items():
        document["config"].setdefault(f"{PROJECT}:{section}", {}).update(values)
    _YAML.dump(document, deployment.config_file)


def settings(deployment: Deployment) -> dict[str, Any]:
    """The stack file's keys, without the project's name."""
    config = YAML(typ="safe").load(deployment.config_file)["config"]
    return {key.removeprefix(f"{PROJECT}:"): value for key, value in config.items()}
