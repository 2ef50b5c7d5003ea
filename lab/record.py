"""What an instance is, written down: in a folder of the cache that lives exactly as long as the instance."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.shell import LabError, run
from lab.topology import DEFAULT_INTERFACES, Node, nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.outer import Outer

_CLONE = Path(__file__).resolve().parent.parent
_FIRST_PORT = 22000
_PORTS = 4000


def default_name() -> str:
    """SPARK_LAB, or a name that no other clone has."""
    return os.environ.get("SPARK_LAB") or f"lab-{hashlib.sha256(str(_CLONE).encode()).hexdigest()[:6]}"


@dataclass(frozen=True)
class Record:
    """The facts of one instance that outlive its processes.

    Attributes:
        name: Of the instance.
        clone: The clone of this repository that made it.
        workers: Nodes besides the head.
        worker_interfaces: The rails' names on the workers.
        ssh_port: On 127.0.0.1, leads to the head's sshd.
        api_port: On 127.0.0.1, leads to the same port of the head.
    """

    name: str
    clone: str
    workers: int
    worker_interfaces: tuple[str, ...]
    ssh_port: int
    api_port: int

    def nodes(self) -> list[Node]:
        """The instance's nodes, the head first."""
        return nodes(self.name, self.workers, self.worker_interfaces)


@dataclass(frozen=True)
class Folder:
    """The folder of an instance: its record, its operator's key, its nodes' host keys."""

    outer: Outer
    name: str

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.outer.cache / "instances" / self.name

    @property
    def key(self) -> Path:
        """The operator's private key."""
        return self.path / "id_ed25519"

    def host_key(self, node: str) -> Path:
        """A node's private host key."""
        return self.path / f"{node}_host_key"

    def load(self) -> Record | None:
        """The record, if there is such an instance."""
        try:
            values = json.loads((self.path / "instance.json").read_text())
        except FileNotFoundError:
            return None
        return Record(**{**values, "worker_interfaces": tuple(values["worker_interfaces"])})

    def create(self, workers: int | None, worker_interfaces: tuple[str, ...] | None) -> Record:
        """Load the record, or make one with keys and free ports.

        Args:
            workers: How many are asked for; one, or as many as there are, if None.
            worker_interfaces: The names that are asked for.

        Returns:
            The instance's record.

        Raises:
            LabError: The instance exists and is another's, or was made otherwise than asked for.
        """
        record = self.load()
        if record is None:
            return self._make(workers or 1, worker_interfaces or DEFAULT_INTERFACES)
        if record.clone != str(_CLONE):
            raise LabError(f"Instance {self.name} is of {record.clone}: choose another name by SPARK_LAB.")
        asked = (workers or record.workers, worker_interfaces or record.worker_interfaces)
        if asked != (record.workers, record.worker_interfaces):
            raise LabError(f"Instance {self.name} was made with other workers: take it down first.")
        return record

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _make(self, workers: int, worker_interfaces: tuple[str, ...]) -> Record:
        taken = {port for record in records(self.outer) for port in (record.ssh_port, record.api_port)}
        start = _FIRST_PORT + int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % _PORTS
        free = (port for port in range(start, start + _PORTS) if port not in taken and _is_free(port))
        record = Record(self.name, str(_CLONE), workers, worker_interfaces, next(free), next(free))
        self.remove()
        self.path.mkdir(parents=True, mode=0o700)
        _make_key(self.key, f"{self.name} operator")
        for node in record.nodes():
            _make_key(self.host_key(node.name), node.name)
        (self.path / "ssh_config").write_text(self._ssh_config(record))
        (self.path / "known_hosts").write_text(
            "".join(f"{node.name} {public_key(self.host_key(node.name))}\n" for node in record.nodes())
        )
        (self.path / "instance.json").write_text(json.dumps(asdict(record), indent=2) + "\n")
        return record

    def _ssh_config(self, record: Record) -> str:
        lines = []
        for node in record.nodes():
            way = ["HostName 127.0.0.1", f"Port {record.ssh_port}"] if node.is_head else [
                f"HostName {node.ssh_address}",
                f'ProxyCommand ssh -F "{self.path}/ssh_config" -W %h:%p head',
            ]  # fmt: skip
            lines += [f"Host {node.name}", *(f"  {line}" for line in [*way, f"HostKeyAlias {node.name}"])]
        common = (
            "User aurora", f'IdentityFile "{self.key}"', "IdentitiesOnly yes", "BatchMode yes",
            f'UserKnownHostsFile "{self.path}/known_hosts"', "StrictHostKeyChecking yes", "ConnectTimeout 5",
        )  # fmt: skip
        return "\n".join([*lines, "Host *", *(f"  {line}" for line in common)]) + "\n"


def records(outer: Outer) -> Iterator[Record]:
    """The records of all instances of this machine."""
    for path in sorted((outer.cache / "instances").glob("*/instance.json")):
        record = Folder(outer, path.parent.name).load()
        if record is not None:
            yield record


def public_key(private: Path) -> str:
    """Type and key of the public half, without its comment."""
    return " ".join(private.with_name(f"{private.name}.pub").read_text().split()[:2])


def _make_key(path: Path, comment: str) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
