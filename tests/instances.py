"""A lab instance for a test session: made at its start, gone at its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from lab.instance import Lab
from lab.machine import require_machine
from lab.outer import Outer
from lab.record import default_name
from lab.shell import LabError


def fresh(
    suffix: str,
    workers: int = 1,
    image: Callable[[Outer], str] | None = None,
    worker_interfaces: tuple[str, ...] | None = None,
) -> Iterator[Lab]:
    """Bring an instance of this clone up anew, and take it down unless SPARK_LAB_KEEP=1.

    Args:
        suffix: Of its name.
        workers: Nodes besides the head.
        image: Makes an image that the nodes have on their disks already, if such a disk is kept.
        worker_interfaces: The names of the rails on the workers, if they are not those of the head.
    """
    try:
        require_machine()
    except LabError as error:
        pytest.skip(f"no lab on this machine: {error}")
    # tests that run side by side have nodes of their own
    process = os.environ.get("PYTEST_XDIST_WORKER", "")
    instance = Lab(f"{default_name()}-{suffix}{process}")
    if instance.folder.load() is not None:
        instance.down()
    instance.up(workers, worker_interfaces, disk=image(instance.engine()) if image else None)
    yield instance
    if os.environ.get("SPARK_LAB_KEEP") != "1":
        instance.down()
