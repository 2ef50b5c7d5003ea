"""`pulumi` killed in the middle, and the documented steps that repair what it began."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from lab.deployment import ROOT, Deployment
from tests.deployment.operator import command
from tests.deployment.stack import ask, unchanged


def kill_at(deployment: Deployment, pattern: str) -> None:
    """Start `up`, and kill it and its plugins when its output matches."""
    argv = [
        "pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--refresh=false",
        f"--stack={deployment.stack}", f"--config-file={deployment.config_file}",
    ]  # fmt: skip
    with subprocess.Popen(
        argv, cwd=ROOT, env=deployment.process_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout
        seen = []
        for line in process.stdout:
            seen.append(line)
            if re.search(pattern, line):
                break
        else:
            pytest.fail(f"{pattern} never came:\n{''.join(seen)}")
        os.killpg(process.pid, signal.SIGKILL)


def recover(deployment: Deployment) -> str:
    """Run `spark-vllm recover`, and return what it said."""
    return command(deployment, "recover", "--yes").stderr


def repaired(deployment: Deployment) -> None:
    """Take the documented steps, and assert that all is well."""
    said = recover(deployment)
    assert f"pulumi up --refresh --stack {deployment.stack}" in said
    deployment.must("up", "--refresh")
    assert ask(deployment).status_code == 200
    unchanged(deployment)
