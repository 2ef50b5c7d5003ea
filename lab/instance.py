"""One lab: a head, its workers, the links between them and the operator's way in."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from lab import registry
from lab.access import Access
from lab.disks import Disks
from lab.files import SYSFS_ROOT
from lab.hub import Hub
from lab.links import Links
from lab.locks import locked
from lab.machine import require_machine
from lab.nodes import READY_SECONDS, Nodes
from lab.outer import Outer
from lab.record import Folder, Record, default_name, public_key, records
from lab.shell import LabError, output, run, say
from lab.topology import HUB_PORT, REGISTRY_ADDRESS, REGISTRY_PORT, USER, Nic, Node

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class NodeStatus(TypedDict):
    """One node, as `status --json` prints it."""

    state: str
    host: str
    port: int
    user: str
    hostKey: str
    jump: str | None
    rails: list[dict[str, str | None]]


class Status(TypedDict):
    """An instance, as `status --json` prints it."""

    name: str
    nodes: dict[str, NodeStatus]
    apiPort: int
    registry: str
    hub: str
    agent: str
    sshConfig: str
    sysfs: str


class Lab:
    """An instance by its name; nothing happens before `up`."""

    def __init__(self, name: str | None = None, outer: Outer | None = None) -> None:
        """Name the instance.

        Args:
            name: By default that of this clone, or SPARK_LAB.
            outer: The engine that it lives on.

        Raises:
            LabError: The name can't be that of a container and a folder.
        """
        self.name = name or default_name()
        if not _NAME.fullmatch(self.name):
            raise LabError(
                f"{self.name!r} is no name for a lab: take up to 40 lower-case letters, digits and hyphens."
            )
        self.outer = outer or Outer()
        self.folder = Folder(self.outer, self.name)
        self.links = Links(self.outer, self.name)
        self.nodes = Nodes(self.outer, self.folder, self.links)
        self.access = Access(self.outer, self.name)
        self.disks = Disks(self.outer)

    @property
    def record(self) -> Record:
        """What is written down of it.

        Raises:
            LabError: It was never brought up.
        """
        record = self.folder.load()
        if record is None:
            raise LabError(f"There is no instance {self.name}: python -m lab up.")
        return record

    @property
    def hub(self) -> Hub:
        """The hub that the head can reach, as a folder."""
        return Hub(self.access.hub)

    @property
    def agent_socket(self) -> Path:
        """The socket of the agent that holds the operator's key."""
        return self.access.agent_socket

    def up(
        self,
        workers: int | None = None,
        worker_interfaces: tuple[str, ...] | None = None,
        disk: str | None = None,
    ) -> None:
        """Bring the instance up, or repair what of it is down.

        Args:
            workers: Nodes besides the head.
            worker_interfaces: The names of the rails on the workers.
            disk: The image that nodes which are made now have from an earlier life, if it was kept.

        Raises:
            LabError: The machine can't run it, or a node did not come up.
        """
        require_machine()
        with self._lock():
            self.outer.start()
            for stale in [record for record in records(self.outer) if not Path(record.clone).is_dir()]:
                say(f"removing instance {stale.name}, whose clone {stale.clone} is gone")
                Lab(stale.name, self.outer)._remove()  # noqa: SLF001
            record = self.folder.create(workers, worker_interfaces)
            self.access.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.links.ensure_bridges(self.access.network)
            registry.start(self.outer)
            self.nodes.start(record.nodes(), disk if disk and self.disks.has(disk) else None)
            self.access.start(record, self.folder.key)
            for node in record.nodes():
                self.wait_ready(node.name)

    def engine(self) -> Outer:
        """The outer engine, started if need be, for whoever has work for it before the lab is up."""
        with self._lock():
            self.outer.start()
        return self.outer

    def down(self) -> None:
        """Remove the instance; with the last one the outer engine stops."""
        with self._lock():
            if self.folder.load() is not None:
                self.outer.start()
                self._remove()
            if not any(records(self.outer)):
                self.outer.stop()

    def status(self) -> Status:
        """What there is and how to reach it."""
        record = self.record
        states = self.nodes.states() if self.outer.pid() else {}
        nodes = {
            node.name: NodeStatus(
                state=states.get(node.name, "absent"),
                host="127.0.0.1" if node.is_head else node.ssh_address,
                port=record.ssh_port if node.is_head else 22,
                user=USER,
                hostKey=public_key(self.folder.host_key(node.name)),
                jump=None if node.is_head else "head",
                rails=[
                    {"interface": nic.name, "address": nic.address, "rdmaDevice": nic.rdma_device}
                    for nic in node.rails
                ],
            )
            for node in record.nodes()
        }
        return Status(
            name=self.name,
            nodes=nodes,
            apiPort=record.api_port,
            registry=f"{REGISTRY_ADDRESS}:{REGISTRY_PORT}",
            hub=f"http://{REGISTRY_ADDRESS}:{HUB_PORT}",
            agent=str(self.agent_socket),
            sshConfig=str(self.folder.path / "ssh_config"),
            sysfs=SYSFS_ROOT,
        )

    def environment(self) -> Mapping[str, str]:
        """The variables that an operator of this instance needs."""
        return {"SPARK_LAB": self.name, "SSH_AUTH_SOCK": str(self.agent_socket)}

    def node(self, name: str) -> Node:
        """A node by its name.

        Raises:
            LabError: There is none of that name.
        """
        for node in self.record.nodes():
            if node.name == name:
                return node
        raise LabError(f"Instance {self.name} has no node {name}.")

    def nic(self, node: str, rail: int) -> Nic:
        """A node's rail by its number, from 0.

        Raises:
            LabError: The node has no such rail.
        """
        rails = self.node(node).rails
        if rail not in range(len(rails)):
            raise LabError(f"Node {node} has rails 0 to {len(rails) - 1}, not {rail}.")
        return rails[rail]

    def container(self, node: str) -> str:
        """The name of the outer engine's container that is this node."""
        return self.nodes.container(self.node(node).name)

    def root(self, node: str, *argv: str, stdin: bytes | None = None, timeout: float = 600) -> str:
        """Run a command as root in a node, past its SSH.

        Returns:
            Its stdout.

        Raises:
            LabError: It failed.
        """
        done = self.outer.enter(self.container(node), *argv, stdin=stdin, timeout=timeout)
        return output(["root in", node, *argv], done)

    def docker(self, node: str, *argv: str, timeout: float = 600) -> str:
        """Run a docker command on the engine inside a node.

        Returns:
            Its stdout.
        """
        return self.root(node, "docker", *argv, timeout=timeout)

    def ssh(self, node: str, *argv: str, timeout: float = 60) -> str:
        """Run a command as the operator does: over SSH, to a worker through the head.

        Returns:
            Its stdout.
        """
        return run(["ssh", "-F", str(self.folder.path / "ssh_config"), node, "--", *argv], timeout=timeout)

    def load(self, node: str, image: str) -> None:
        """Give a node's engine an image of the outer engine, unless it has it."""
        inspect = ("exec", self.container(node), "docker", "image", "inspect", image)
        if self.outer.attempt(*inspect).returncode == 0:
            return
        say(f"loading {image} into {node}")
        save = self.outer.command("save", image)
        load = self.outer.command("exec", "-i", self.container(node), "docker", "load", "--quiet")
        with subprocess.Popen(save, stdout=subprocess.PIPE) as source:
            loaded = subprocess.run(load, stdin=source.stdout, stdout=subprocess.DEVNULL, check=False)
        if source.returncode or loaded.returncode:
            raise LabError(f"{image} could not be loaded into {node}.")

    def keep_disk(self, node: str, image: str) -> None:
        """Keep a node's disk with the image for nodes of later labs, unless one is kept already.

        Containers on it are gone by then.
        """
        # other clones give their nodes the same disks
        with self._lock():
            if self.disks.has(image):
                return
            self.root(node, "systemctl", "stop", "docker.service", "docker.socket")
            self.disks.keep(image, self.nodes.volume(node))
            self.root(node, "systemctl", "start", "docker.service")

    def push(self, image: str) -> str:
        """Put an image of the outer engine into the registry that the head can reach.

        Returns:
            The reference to pull it by, with its digest.
        """
        registry.start(self.outer)
        return registry.push(self.outer, image)

    def reboot(self, node: str) -> None:
        """Shut a node down in order and boot it."""
        self.outer.docker("stop", "--time=30", self.container(node))
        self.power_on(node)

    def power_off(self, node: str) -> None:
        """Cut a node's power."""
        self.outer.docker("kill", self.container(node))

    def power_on(self, node: str) -> None:
        """Boot a node that is off, and wait until it is ready."""
        with self._lock():
            self.nodes.start([self.node(node)])
        self.wait_ready(node)

    def freeze(self, node: str) -> None:
        """Stop all processes of a node where they are, as a hung kernel does."""
        self.outer.docker("pause", self.container(node))

    def thaw(self, node: str) -> None:
        """Let a frozen node go on."""
        self.outer.docker("unpause", self.container(node))

    def unplug(self, node: str, rail: int) -> None:
        """Pull the cable of a rail."""
        self.links.set_cable(self.node(node), self.nic(node, rail), connected=False)

    def plug(self, node: str, rail: int) -> None:
        """Put the cable of a rail back."""
        self.links.set_cable(self.node(node), self.nic(node, rail), connected=True)

    def drop(self, node: str, address: str) -> None:
        """Let a node lose all packets to and from an address, without a word to either side."""
        for chain, end in (("INPUT", "--source"), ("OUTPUT", "--destination")):
            self.root(node, "iptables", "-I", chain, end, address, "-j", "DROP")

    def undrop(self, node: str, address: str) -> None:
        """Take back a drop."""
        for chain, end in (("INPUT", "--source"), ("OUTPUT", "--destination")):
            self.root(node, "iptables", "-D", chain, end, address, "-j", "DROP")

    def wait_ready(self, node: str, seconds: float = READY_SECONDS) -> None:
        """Wait until a node has its addresses and its sshd and engine answer.

        Raises:
            LabError: It did not in time.
        """
        self.nodes.wait_ready(self.node(node), seconds)

    def _lock(self) -> AbstractContextManager[None]:
        return locked(self.outer.cache / "lock")

    def _remove(self) -> None:
        say(f"removing instance {self.name}")
        self.access.stop(self.record)
        self.nodes.remove()
        self.links.remove()
        shutil.rmtree(self.access.run_dir, ignore_errors=True)
        self.folder.remove()
