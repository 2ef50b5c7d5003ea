"""Previews on the real engine with no node in reach: of the stack files, and of many nodes."""

from __future__ import annotations

import json
import logging
import resource
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests import samples

if TYPE_CHECKING:
    from lab.engine.setup import Engine

ROOT = Path(__file__).parents[2]
STACK = "scale"


class Cost(NamedTuple):
    """Of one preview: its resources, and seconds by the clock and of the processors."""

    resources: int
    wall: float
    cpu: float


@pytest.fixture
def salt(engine: Engine, tmp_path: Path) -> str:
    """A stack in the backend; what `stack init` writes into the project goes out of it again."""
    del engine
    pulumi("stack", "init", STACK)
    written = shutil.move(ROOT / f"Pulumi.{STACK}.yaml", tmp_path / "salt.yaml")
    return Path(written).read_text(encoding="utf-8")


def pulumi(*argv: str, at: Path = ROOT) -> str:
    done = subprocess.run(["pulumi", *argv], cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def preview(nodes: int, place: Path, salt: str) -> Cost:
    config = samples.config(nodes, vllm={"servedModelName": "tiny", "allowUnauthenticated": True})
    settings = {f"spark-vllm:{key}": value for key, value in config.items()}
    file = place / f"{nodes}.yaml"
    disabled = {"pulumi:disable-default-providers": ["docker"]}
    file.write_text(f"{salt}\nconfig: {json.dumps(disabled | settings)}\n", encoding="utf-8")
    began, used = time.monotonic(), processors()
    said = json.loads(pulumi("preview", "--json", "--stack", STACK, "--config-file", str(file)))
    return Cost(said["changeSummary"]["create"], time.monotonic() - began, processors() - used)


def processors() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_a_preview_grows_no_faster_than_the_nodes(salt: str, tmp_path: Path) -> None:
    costs = {nodes: preview(nodes, tmp_path, salt) for nodes in (2, 6, 24)}
    for nodes, cost in costs.items():
        logging.getLogger(__name__).info("%d nodes: %s", nodes, cost)
    each = (costs[6].resources - costs[2].resources) // 4
    assert all(cost.resources == costs[2].resources + each * (nodes - 2) for nodes, cost in costs.items())
    # Four times the nodes cost sixteen times as much where something grows as their square.
    assert costs[24].cpu / costs[6].cpu < 6


@pytest.mark.parametrize("stack", ["spark", "spark-solo", "spark-quad"])
@pytest.mark.report("K2")
def test_a_stack_file_of_the_repository_previews_with_no_node_in_reach(
    engine: Engine, stack: str, tmp_path: Path
) -> None:
    del engine
    fresh = tmp_path / "clone"
    shutil.copytree(
        ROOT, fresh, ignore=shutil.ignore_patterns(".git", ".local", ".venv", ".*cache", "Pulumi.lab.yaml")
    )
    (fresh / ".venv").symlink_to(ROOT / ".venv")
    pulumi("stack", "init", stack, at=fresh)
    said = pulumi("preview", "--stack", stack, "--non-interactive", at=fresh)
    for missing in ("has no digest", "No host key is pinned for", "spark-vllm discover", "apiKey"):
        assert missing in said, said
    assert "Traceback" not in said
