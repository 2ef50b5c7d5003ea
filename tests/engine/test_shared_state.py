"""State that several machines share, in an S3-compatible backend; the pull request's plan of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from moto.server import ThreadedMotoServer
from ruamel.yaml import YAML

from tests import samples

if TYPE_CHECKING:
    from lab.engine.setup import Engine

ROOT = Path(__file__).parents[2]
STACK = "spark"
LEFT_OUT = (".git", ".local", ".venv", ".*cache", "Pulumi.*.yaml", "bench")


@pytest.fixture
def shared(engine: Engine) -> Iterator[dict[str, str]]:
    """The variables of a machine that uses the backend."""
    del engine
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        endpoint = f"http://127.0.0.1:{port}"
        httpx.put(f"{endpoint}/states").raise_for_status()
        yield os.environ | {
            "PULUMI_BACKEND_URL": f"s3://states?region=us-east-1&endpoint={endpoint}&s3ForcePathStyle=true",
            "AWS_ACCESS_KEY_ID": "for tests",
            "AWS_SECRET_ACCESS_KEY": "for tests",
            "STACK": STACK,
        }
    finally:
        server.stop()


def machine(place: Path, *, file: str | None = None) -> Path:
    """A clone, on whatever machine, with a stack file."""
    shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (place / ".venv").symlink_to(ROOT / ".venv")
    if file is not None:
        (place / f"Pulumi.{STACK}.yaml").write_text(file, encoding="utf-8")
    return place


def run(*argv: str, at: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(argv, cwd=at, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def the_plan(at: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Take the workflow's step as a runner does; its status and the comment's text."""
    steps = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "plan.yaml")["jobs"]["plan"]["steps"]
    (step,) = [each for each in steps if each.get("name") == "plan"]
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        cwd=at,
        env={**environment, "GITHUB_STEP_SUMMARY": str(at / "summary.md")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    comment = (at / "plan.md").read_text(encoding="utf-8")
    assert (at / "summary.md").read_text(encoding="utf-8") == comment
    return done.returncode, comment


def test_a_pull_request_is_told_what_its_stack_file_would_do(shared: dict[str, str], tmp_path: Path) -> None:
    config = samples.config(2, vllm={"servedModelName": "tiny", "allowUnauthenticated": True})
    settings = {f"spark-vllm:{key}": value for key, value in config.items()}
    operator = machine(tmp_path / "operator")
    run("pulumi", "stack", "init", STACK, at=operator, environment=shared)
    file = operator / f"Pulumi.{STACK}.yaml"
    salt = file.read_text(encoding="utf-8")
    disabled = {"pulumi:disable-default-providers": ["docker"]}
    whole = f"{salt}\nconfig: {json.dumps(disabled | settings)}\n"

    runner = machine(tmp_path / "runner", file=whole)
    status, comment = the_plan(runner, shared)
    assert status == 0, comment
    assert comment.startswith(f"### 🟢 `{STACK}`: The server is started")
    assert "1. start ray-head\n1. start ray-worker\n1. start vllm" in comment

    wrong = machine(tmp_path / "wrong", file=whole.replace("servedModelName", "servedModelNam"))
    status, comment = the_plan(wrong, shared)
    assert status == 1
    assert "the preview failed" in comment
    assert "servedModelNam" in comment
    assert "Traceback" not in comment
