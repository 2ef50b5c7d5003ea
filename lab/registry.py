"""One image registry for all labs of a machine: it listens inside the engine's network namespace.

Each instance's head reaches it through a relay on its management network. Its storage outlives the engine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from lab.build import build_image
from lab.shell import say
from lab.topology import REGISTRY_ADDRESS, REGISTRY_PORT

if TYPE_CHECKING:
    from lab.outer import Outer

_CONTAINER = "spark-lab-registry"
_LOCAL = f"127.0.0.1:{REGISTRY_PORT}"


def start(outer: Outer) -> None:
    """Start the registry unless it runs."""
    state = outer.attempt("container", "inspect", "--format={{.State.Running}}", _CONTAINER).stdout.strip()
    if state == b"true":
        return
    outer.attempt("rm", "--force", _CONTAINER)
    storage = outer.cache / "registry"
    storage.mkdir(parents=True, exist_ok=True)
    outer.docker(
        "run", "--detach", f"--name={_CONTAINER}", "--network=host", "--restart=always",
        f"--volume={storage}:/var/lib/docker-registry", registry_image(outer),
    )  # fmt: skip


def registry_image(outer: Outer) -> str:
    """The registry's image, built if need be.

    Returns:
        Its tag.
    """
    return build_image(outer, Path(__file__).with_name("registry"), "spark-lab/registry")


def push(outer: Outer, image: str) -> str:
    """Put an image of the outer engine into the registry; layers that are there are not sent again.

    Returns:
        The reference by which a head pulls it, with its digest.
    """
    local = f"{_LOCAL}/{image}"
    repository = local.rpartition(":")[0]
    outer.docker("tag", image, local)
    say(f"pushing {image}")
    outer.docker("push", "--quiet", local, timeout=1800)
    digests: list[str] = json.loads(outer.docker("image", "inspect", "--format={{json .RepoDigests}}", local))
    digest = next(entry for entry in digests if entry.startswith(f"{repository}@")).partition("@")[2]
    return f"{REGISTRY_ADDRESS}:{REGISTRY_PORT}/{image}@{digest}"
