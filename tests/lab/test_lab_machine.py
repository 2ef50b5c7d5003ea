from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from lab import machine
from lab.shell import LabError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def fit_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine, "_GPU_SIGNS", ())
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.delenv("SPARK_LAB_ON_GPU", raising=False)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been run."""
    ran: list[str] = []

    def record(argv: list[str], **_: object) -> str:
        ran.append(" ".join(argv))
        return ""

    monkeypatch.setattr(machine, "run", record)
    return ran


def test_fit_machine_is_left_alone(commands: list[str]) -> None:
    machine.require_machine()

    assert commands == []


def test_root_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(LabError, match="sudo"):
        machine.require_machine()


def test_gpu_needs_leave(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sign = tmp_path / "nvidia0"
    sign.touch()
    monkeypatch.setattr(machine, "_GPU_SIGNS", (str(sign),))

    with pytest.raises(LabError, match="SPARK_LAB_ON_GPU=1"):
        machine.require_machine()

    monkeypatch.setenv("SPARK_LAB_ON_GPU", "1")
    machine.require_machine()


def test_missing_tools_without_apt_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with pytest.raises(LabError, match=r"docker\.io, slirp4netns"):
        machine.require_machine()


def test_missing_tool_is_installed_with_no_daemon_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guard = tmp_path / "policy-rc.d"
    monkeypatch.setattr(machine, "_POLICY", guard)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "socat" else tool)
    seen: dict[str, bool] = {}

    def record(argv: list[str], **_: object) -> str:
        seen[argv[1]] = guard.exists()
        return ""

    monkeypatch.setattr(machine, "run", record)

    machine.require_machine()

    assert seen == {"update": False, "install": True}
    assert not guard.exists()


def test_docker_ce_is_never_replaced(monkeypatch: pytest.MonkeyPatch, commands: list[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "dockerd" else tool)
    monkeypatch.setattr(machine, "attempt", lambda *_: type("Done", (), {"returncode": 0})())

    with pytest.raises(LabError, match="docker-ce"):
        machine.require_machine()
    assert commands == []
