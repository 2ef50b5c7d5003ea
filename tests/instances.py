"""A lab instance for a test session: made at its start, gone at its end."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lab.instance import Lab
from lab.machine import require_machine
from lab.record import default_name
from lab.shell import LabError


def fresh(suffix: str, workers: int = 1) -> Iterator[Lab]:
    """Bring an instance of this clone up anew, and take it down unless SPARK_LAB_KEEP=1."""
    try:
        require_machine()
    except LabError as error:
        pytest.skip(f"no lab on this machine: {error}")
    instance = Lab(f"{default_name()}-{suffix}")
    instance.down()
    instance.up(workers)
    yield instance
    if os.environ.get("SPARK_LAB_KEEP") != "1":
        instance.down()
