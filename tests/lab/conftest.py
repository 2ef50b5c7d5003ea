"""The lab of the tests: an instance of their own, made at the start of the session and gone at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.instances import fresh
from tests.lab.host import host_network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.instance import Lab


@pytest.fixture(scope="session")
def host_before() -> dict[str, str]:
    return host_network()


@pytest.fixture(scope="session")
def lab(host_before: dict[str, str]) -> Iterator[Lab]:  # noqa: ARG001
    yield from fresh("tests")
