"""The containers of a stack, as the nodes have them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import asyncssh

from components.settings import PROJECT
from scripts import ssh

SERVER = "vllm"
"""The container that serves, on the head."""
RESOURCE = "docker:index/container:Container"
"""What Pulumi calls a container."""


@dataclass(frozen=True)
class Container:
    """A container; times as Docker writes them (RFC 3339, UTC)."""

    id: str
    name: str
    state: str
    exit_code: int
    restarts: int
    out_of_memory: bool
    started: str
    finished: str

    @classmethod
    def read(cls, line: str) -> Container:
        """Read a line of containers.sh, without `container=`."""
        number, name, state, code, restarts, oom, started, finished = line.split()
        return cls(number, name, state, int(code), int(restarts), oom == "true", started, finished)

    @property
    def age(self) -> float:
        """Seconds since it was started or, where it runs no more, ended."""
        when = self.started if self.state == "running" else self.finished
        return (datetime.now(UTC) - datetime.fromisoformat(when[:19] + "+00:00")).total_seconds()

    @property
    def words(self) -> str:
        """What a person wants to know of it."""
        words = f"{self.state} {ago(self.age)}" if self.state != "created" else self.state
        if self.state != "running":
            words += f", exit status {self.exit_code}{', out of memory' if self.out_of_memory else ''}"
        return f"{words}, {self.restarted}" if self.restarts else words

    @property
    def restarted(self) -> str:
        """How often Docker has started it again."""
        return f"restarted {'once' if self.restarts == 1 else f'{self.restarts} times'}"


def ago(seconds: float) -> str:
    """A span of time, in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def read(out: str) -> list[Container]:
    """Read what a script printed that lists containers."""
    prefix = "container="
    return [Container.read(line.removeprefix(prefix)) for line in out.splitlines() if line.startswith(prefix)]


async def ours(connection: asyncssh.SSHClientConnection, node: str, stack: str) -> list[Container]:
    """The containers of a stack on a node.

    Raises:
        UnreachableError: Docker does not answer there.
    """
    inputs = {"NODE": node, "PROJECT": PROJECT, "STACK": stack}
    return read(await ssh.run(connection, "ours.sh", inputs, libraries=["containers.sh"]))
