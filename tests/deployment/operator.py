"""The operator's commands, as a person runs them."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Self

from lab.deployment import ROOT, Deployment


def command(
    deployment: Deployment, name: str, *argv: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run `spark-vllm NAME` on a stack, as wide as a pipe is, and assert its exit status."""
    environment = deployment.process_environment()
    environment.pop("COLUMNS", None)
    done = subprocess.run(
        _argv(deployment, name, argv),
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


def _argv(deployment: Deployment, name: str, argv: Sequence[str]) -> list[str]:
    own = (f"--stack={deployment.stack}", f"--config-file={deployment.config_file}")
    return [str(ROOT / "bin" / "spark-vllm"), name, *own, *argv]


class Terminal:
    """A command that goes on until Ctrl-C, in a terminal."""

    def __init__(self, deployment: Deployment, name: str, *argv: str) -> None:
        self._argv = [
            # what is started in the background of a shell without job control has Ctrl-C ignored
            "env",
            "--default-signal=INT",
            *_argv(deployment, name, argv),
        ]
        self._environment = {**deployment.process_environment(), "COLUMNS": "160", "TERM": "xterm"}
        self._said = ""

    def __enter__(self) -> Self:
        """Start it."""
        self._master, slave = os.openpty()
        self._process = subprocess.Popen(
            self._argv, env=self._environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        return self

    def __exit__(self, *_: object) -> None:
        """End it in any case."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._master)

    def shows(self, words: str, seconds: float = 30) -> None:
        """Assert that it comes to show these words, after what was asked for before."""
        end = time.monotonic() + seconds
        while (found := self._said.find(words)) < 0:
            rest = end - time.monotonic()
            assert rest > 0, f"{words!r} was not shown; after what was there before:\n{self._said}"
            if select.select([self._master], [], [], rest)[0]:
                text = os.read(self._master, 65536).decode(errors="replace")
                self._said += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        self._said = self._said[found + len(words) :]

    def end(self) -> int:
        """Press Ctrl-C, and return its exit status."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self._process.wait(timeout=20)
