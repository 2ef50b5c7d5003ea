"""The outer engine: one dockerd for all labs of a machine, in namespaces of its own.

The host's links, firewall rules and forwarding stay as they are: the engine has its own network namespace
with slirp4netns as the way out, its own mount namespace, and its own PID namespace (first process: outer.sh).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine import cache_directory
from lab.shell import LabError, attempt, run, say

if TYPE_CHECKING:
    from collections.abc import Mapping

_INIT = Path(__file__).with_name("outer.sh")
_START_SECONDS = 60
_STOP_SECONDS = 30
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Outer:
    """One outer engine; its name keeps two of them on a machine apart."""

    name: str = field(default_factory=lambda: os.environ.get("SPARK_LAB_ENGINE", "spark-vllm-lab"))

    @property
    def run_dir(self) -> Path:
        """Sockets, PID files and logs; gone when the engine is."""
        return Path("/run") / self.name

    @property
    def cache(self) -> Path:
        """What outlives the engine."""
        root = cache_directory()
        return root if self.name == "spark-vllm-lab" else root / self.name

    @property
    def socket(self) -> Path:
        """The engine's API."""
        return self.run_dir / "docker.sock"

    @property
    def network(self) -> Path:
        """The engine's network namespace, as a path that only its own mount namespace knows."""
        return self.run_dir / "net"

    def pid(self) -> int | None:
        """The host's number of the namespace's first process, if it lives."""
        try:
            pid = int((self.run_dir / "init.pid").read_text())
            argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (OSError, ValueError):
            return None
        return (
            pid
            if str(self.run_dir) in argv and any(word.endswith(f"/{_INIT.name}") for word in argv)
            else None
        )

    def start(self) -> None:
        """Start the engine unless it answers already.

        Raises:
            LabError: It does not answer; the message holds its last words.
        """
        if self.pid() is not None:
            if self._answers():
                return
            self.stop()
        say("starting the outer engine")
        self._clear()
        self.run_dir.mkdir(parents=True)
        log = self.run_dir / "log"
        argv = ["bash", str(_INIT), str(self.run_dir), str(self.cache / "docker"), self.name]
        with log.open("wb") as output:
            first = subprocess.Popen(
                ["unshare", "--fork", "--pid", "--mount", *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + _START_SECONDS
        while not self._answers():
            if first.poll() is not None or time.monotonic() > end:
                last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
                self.stop()
                raise LabError(f"The outer engine did not start:\n{last}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the engine and all that runs on it; its cache stays."""
        pid = self.pid()
        if pid is not None:
            say("stopping the outer engine")
            os.kill(pid, signal.SIGTERM)
            if not _gone(pid, _STOP_SECONDS) and self.pid() == pid:
                os.kill(pid, signal.SIGKILL)
        self._clear()

    def purge(self) -> None:
        """Stop the engine and remove its cache: images, the registry's layers, what is left of instances."""
        self.stop()
        say(f"removing {self.cache}")
        shutil.rmtree(self.cache, ignore_errors=True)

    def docker(self, *argv: str, stdin: bytes | None = None, timeout: float = 600) -> str:
        """Run a docker command on the engine.

        Returns:
            Its stdout.

        Raises:
            LabError: It failed.
        """
        return run(self.command(*argv), stdin=stdin, env=self._environment(), timeout=timeout)

    def attempt(
        self, *argv: str, stdin: bytes | None = None, timeout: float = 600
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a docker command on the engine, whatever its status."""
        return attempt(self.command(*argv), stdin=stdin, env=self._environment(), timeout=timeout)

    def command(self, *argv: str) -> list[str]:
        """A docker command line for the engine."""
        return ["docker", "--host", f"unix://{self.socket}", *argv]

    def inside(self, *argv: str, network: Path | None = None, stdin: bytes | None = None) -> str:
        """Run a command in the engine's PID and mount namespaces.

        Args:
            argv: The command.
            network: A network namespace as those know it; the host's own if None.
            stdin: What the command reads.

        Returns:
            Its stdout.

        Raises:
            LabError: The command failed, or there is no engine.
        """
        enter = self._in()
        if network is not None:
            enter += ["nsenter", f"--net={network}"]
        return run([*enter, *argv], stdin=stdin)

    def _in(self) -> list[str]:
        """What a command line begins with in the engine's PID and mount namespaces."""
        pid = self.pid()
        if pid is None:
            raise LabError("The lab is not up: python -m lab up.")
        return ["nsenter", f"--target={pid}", "--pid", "--mount"]

    def enter(
        self, container: str, *argv: str, stdin: bytes | None = None, timeout: float = 600
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command as root in a container's namespaces: as `docker exec`, for a fraction of its work.

        Raises:
            LabError: The container does not run.
        """
        pid = self.docker("inspect", "--format={{.State.Pid}}", container)
        if pid == "0":
            raise LabError(f"{container} does not run.")
        into = ["nsenter", f"--target={pid}", "--all", "--wd=/", "env", "-i", "HOME=/root", f"PATH={_PATH}"]
        return attempt([*self._in(), *into, *argv], stdin=stdin, timeout=timeout)

    def has_image(self, tag: str) -> bool:
        """Whether the engine holds that image."""
        return self.attempt("image", "inspect", tag).returncode == 0

    def _answers(self) -> bool:
        return self.socket.exists() and self.attempt("version", timeout=10).returncode == 0

    def _environment(self) -> Mapping[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith("DOCKER_")}
        # The classic builder is the one that every engine and client has.
        return {**own, "DOCKER_BUILDKIT": "0"}

    def _clear(self) -> None:
        """Remove what the engine left in the host's file systems, once its last process is gone."""
        with contextlib.suppress(OSError, ValueError):
            _gone(int((self.run_dir / "init.pid").read_text()), _STOP_SECONDS)
        shutil.rmtree(self.run_dir, ignore_errors=True)
        with contextlib.suppress(OSError):
            Path("/run/containerd").rmdir()
        for top in [*Path("/sys/fs/cgroup").glob(self.name), *Path("/sys/fs/cgroup").glob(f"*/{self.name}")]:
            for directory, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()


def _gone(pid: int, seconds: float) -> bool:
    """Wait for a namespace's first process, which ends last; while it does, its command line is empty."""
    end = time.monotonic() + seconds
    while _is_ours_or_ending(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _is_ours_or_ending(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return not command or _INIT.name in command
