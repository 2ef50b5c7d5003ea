"""Small processes that serve an instance: the relays into its networks and its SSH agent.

They live in the outer engine's PID namespace, so they end with it at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.outer import Outer


@dataclass(frozen=True)
class Daemon:
    """One process with its PID file.

    Attributes:
        pid_file: Holds its number, as the engine's namespace counts.
        argv: The whole command line, by which it is recognised.
        network: The network namespace that it runs in; the host's own if None.
    """

    pid_file: Path
    argv: tuple[str, ...]
    network: Path | None = None

    def is_alive(self, outer: Outer) -> bool:
        """Whether the process of the PID file is this one."""
        try:
            pid = int(self.pid_file.read_text())
            command = Path(f"/proc/{outer.pid()}/root/proc/{pid}/cmdline").read_text()
        except (OSError, ValueError):
            return False
        return command.rstrip("\0").split("\0") == list(self.argv)

    def start(self, outer: Outer) -> None:
        """Start it unless it runs."""
        if self.is_alive(outer):
            return
        detach = 'file=$0; setsid "$@" >"$file.log" 2>&1 </dev/null & echo $! >"$file"'
        outer.inside("sh", "-c", detach, str(self.pid_file), *self.argv, network=self.network)

    def stop(self, outer: Outer) -> None:
        """End it if it runs."""
        if self.is_alive(outer):
            outer.inside("kill", self.pid_file.read_text().strip())
        self.pid_file.unlink(missing_ok=True)


def relay(
    pid_file: Path,
    *,
    listen: tuple[str, int],
    network: Path | None,
    target: tuple[str, int],
    target_network: Path,
) -> Daemon:
    """A TCP relay from an address in one network namespace to an address in another.

    Returns:
        The process that does it.
    """
    there = f"nsenter --net={target_network} socat -t 30 - TCP:{target[0]}:{target[1]}"
    door = f"TCP-LISTEN:{listen[1]},bind={listen[0]},reuseaddr,fork"
    return Daemon(pid_file, ("socat", "-t", "30", door, f'EXEC:"{there}"'), network)


def agent(pid_file: Path, socket: Path) -> Daemon:
    """An SSH agent.

    Returns:
        The process.
    """
    return Daemon(pid_file, ("ssh-agent", "-D", "-a", str(socket)))
