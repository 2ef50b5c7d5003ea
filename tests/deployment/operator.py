"""The operator's commands, as a person runs them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from lab.deployment import ROOT, Deployment


def command(
    deployment: Deployment, name: str, *argv: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run `spark-vllm NAME` on a stack, as wide as a pipe is, and assert its exit status."""
    environment = deployment.process_environment()
    environment.pop("COLUMNS", None)
    done = subprocess.run(
        [
            str(ROOT / "bin" / "spark-vllm"),
            name,
            f"--stack={deployment.stack}",
            f"--config-file={deployment.config_file}",
            *argv,
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def report(deployment: Deployment, name: str, *argv: str, status: int = 0) -> Any:  # noqa: ANN401 - JSON
    """What a command reports with --json."""
    return json.loads(command(deployment, name, *argv, "--json", status=status).stdout)
