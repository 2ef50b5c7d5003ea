"""Two machines of this one, told apart by their folders and loopback addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.images.programs import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "head").mkdir()
    machine = Machine(tmp_path / "head", {"VLLM_HOST_IP": "127.0.0.2"})
    yield machine
    machine.stop()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "worker").mkdir()
    machine = Machine(tmp_path / "worker", {"VLLM_HOST_IP": "127.0.0.3"})
    yield machine
    machine.stop()
