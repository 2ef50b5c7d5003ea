"""A lab instance for a test session: made at its start, gone at its end."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import pytest

from lab.instance import Lab
from lab.machine import require_machine
from lab.outer import Outer
from lab.record import default_name
from lab.shell import LabError


def fresh(suffix: str, workers: int = 1, image: Callable[[Outer], str] | None = None) -> Iterator[Lab]:
    """Bring an instance of this clone up anew, and take it down unless SPARK_LAB_KEEP=1.

    Args:
        suffix: Of its name.
        workers: Nodes besides the head.
        image: Makes an image that is large: from the second session on the nodes have it on their disks.
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
    disk = re.sub(r"[^a-z0-9]+", "-", image(instance.engine())) if image is not None else None
    instance.up(workers, disk=disk)
    yield instance
    if disk is not None and not instance.disks.has(disk):
        instance.keep_disk("head", disk)
    if os.environ.get("SPARK_LAB_KEEP") != "1":
        instance.down()
