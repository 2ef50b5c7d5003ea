"""The operator's way into an instance: a place on its management network, relays to it, an SSH agent.

127.0.0.1:ssh port, api port -> head          10.1.230.2, seen from the head: 5000 the registry, 5080 the hub
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab import hub_server
from lab.daemons import Daemon, agent, relay
from lab.record import Folder
from lab.shell import attempt, run
from lab.topology import HEAD_ADDRESS, HUB_PORT, REGISTRY_ADDRESS, REGISTRY_PORT

if TYPE_CHECKING:
    from lab.outer import Outer
    from lab.record import Record

_AGENT_SECONDS = 5


@dataclass(frozen=True)
class Access:
    """The processes between the operator and one instance, and where they keep their files."""

    outer: Outer
    name: str

    @property
    def run_dir(self) -> Path:
        """Sockets and PID files; gone when the instance or the engine is."""
        return self.outer.run_dir / "instances" / self.name

    @property
    def network(self) -> Path:
        """The network namespace of the operator's place on the management network."""
        return self.run_dir / "operator.net"

    @property
    def agent_socket(self) -> Path:
        """The socket of the agent that holds the operator's key."""
        return self.run_dir / "agent.sock"

    @property
    def hub(self) -> Path:
        """The folder that the instance's hub serves; gone when the instance is."""
        return Folder(self.outer, self.name).path / "hub"

    def daemons(self, record: Record) -> list[Daemon]:
        """The processes, running or not."""
        return [
            self._to_head("ssh", record.ssh_port, 22),
            self._to_head("api", record.api_port, record.api_port),
            relay(
                self.run_dir / "registry.pid",
                listen=(REGISTRY_ADDRESS, REGISTRY_PORT),
                network=self.network,
                target=("127.0.0.1", REGISTRY_PORT),
                target_network=self.outer.network,
            ),
            Daemon(
                self.run_dir / "hub.pid",
                (sys.executable, hub_server.__file__, str(self.hub), REGISTRY_ADDRESS, str(HUB_PORT)),
                self.network,
            ),
            agent(self.run_dir / "agent.pid", self.agent_socket),
        ]

    def start(self, record: Record, key: Path) -> None:
        """Start what does not run, and give the agent the operator's key."""
        for daemon in self.daemons(record):
            daemon.start(self.outer)
        environment = {**os.environ, "SSH_AUTH_SOCK": str(self.agent_socket)}
        add = ["ssh-add", "-q", str(key)]
        end = time.monotonic() + _AGENT_SECONDS
        while attempt(add, env=environment).returncode and time.monotonic() < end:
            time.sleep(0.05)
        run(add, env=environment)

    def stop(self, record: Record) -> None:
        """End the processes and leave the management network."""
        for daemon in self.daemons(record):
            daemon.stop(self.outer)
        # After a fault it may be a file and no more.
        if f" {self.network} " in Path(f"/proc/{self.outer.pid()}/mounts").read_text(encoding="utf-8"):
            self.outer.inside("umount", str(self.network))
        self.network.unlink(missing_ok=True)

    def _to_head(self, name: str, port: int, head_port: int) -> Daemon:
        return relay(
            self.run_dir / f"{name}.pid",
            listen=("127.0.0.1", port),
            network=None,
            target=(HEAD_ADDRESS, head_port),
            target_network=self.network,
        )
