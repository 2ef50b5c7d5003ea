"""The programs of the images, started from their sources on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from lab.images import fake_model

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
SITE = ROOT / "lab" / "images" / "stub" / "site"
REMOTE = ROOT / "scripts" / "remote"
RAY = ("-m", "ray.scripts.scripts")
VLLM = ("-m", "vllm.entrypoints.cli.main")


def free_port() -> int:
    """A port that nobody listens on, below the range that the kernel hands out meanwhile."""
    while True:
        port = secrets.randbelow(12000) + 20000
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def until(what: Callable[[], T], seconds: float = 8) -> T:
    """Ask until the answer is true, and return it; connections may fail meanwhile."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.TransportError, FileNotFoundError):
            if found := what():
                return found
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


@dataclass
class Machine:
    """A folder that stands for one machine's /tmp, and what runs there."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        own = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SITE),
            "RAY_TMPDIR": str(self.folder),
            "STUB_DIR": str(self.folder / "stub"),
            "STUB_LOAD_S": "0.1",
        }
        return own | self.env | env

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *argv],
            env=self.environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *argv: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *argv],
            env=self.environment(env),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    def record(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "stub" / f"{name}.json").read_text())
        return found

    def model(self) -> str:
        folder = self.folder / "model"
        folder.mkdir(exist_ok=True)
        for name, content in fake_model().items():
            (folder / name).write_bytes(content)
        return str(folder)

    def stop(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()
