"""The entry point: every command is there, and none pays for the others."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from scripts.__main__ import COMMANDS, app


def test_every_command_is_listed() -> None:
    said = CliRunner().invoke(app(COMMANDS), ["--help"], env={"COLUMNS": "120"}).output
    assert all(f" {name} " in said for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_keeps_its_name_where_it_is_the_only_one(name: str) -> None:
    found = CliRunner().invoke(app([name]), [name, "--help"], env={"COLUMNS": "120"})
    assert found.exit_code == 0
    assert f"spark-vllm {name}" in found.output or f"{name} [OPTIONS]" in found.output


def test_a_command_does_not_load_what_draws_charts() -> None:
    script = "import sys; from scripts.__main__ import COMMANDS, app; app(COMMANDS); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "matplotlib" not in done.stdout.split()


def test_a_mistake_is_told_in_a_sentence() -> None:
    argv = [sys.executable, "-m", "scripts", "bench", "compare", "/nowhere.json", "/nowhere.json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: /nowhere.json cannot be read: No such file or directory.\n"
