"""The lab of the tests: an instance of their own, made at the start of the session and gone at its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lab.instance import Lab
from lab.machine import require_machine
from lab.record import default_name
from lab.shell import LabError
from tests.lab.host import host_network

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def host_before() -> dict[str, str]:
    return host_network()


@pytest.fixture(scope="session")
def lab(host_before: dict[str, str]) -> Iterator[Lab]:  # noqa: ARG001
    try:
        require_machine()
    except LabError as error:
        pytest.skip(f"no lab on this machine: {error}")
    instance = Lab(f"{default_name()}-tests")
    instance.down()
    instance.up()
    yield instance
    if os.environ.get("SPARK_LAB_KEEP") != "1":
        instance.down()
