"""What an instance of the lab looks like: nodes, their NICs and addresses, and the fabrics between them.

    operator -- mgmt -- head == rail0, rail1 == worker, worker2, ...      wifi: each worker's decoy

Pure: settings in, values out.
"""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass

USER = "aurora"
HEAD_ADDRESS = "10.1.230.180"
OPERATOR_ADDRESS = "10.1.230.10"
REGISTRY_ADDRESS = "10.1.230.2"
REGISTRY_PORT = 5000
HUB_PORT = 5080
DEFAULT_INTERFACES = ("enp1s0f0np0", "enP2p1s0f0np0")
_FIRST_HOST = 12
_RAILS = ("192.168.200.0/24", "192.168.201.0/24")
_MTU = 9000


@dataclass(frozen=True)
class Nic:
    """One network interface of a node.

    Attributes:
        name: As the node sees it.
        fabric: The bridge that it is plugged into: mgmt, rail0, rail1 or wifi.
        address: With its prefix length.
        mac: Fixed, so that a reboot leaves no stale neighbour entry.
        gateway: Of the default route, if it has one.
        mtu: The largest that link and configuration allow.
    """

    name: str
    fabric: str
    address: str
    mac: str
    gateway: str | None = None
    mtu: int = 1500

    @property
    def rdma_device(self) -> str | None:
        """The RDMA device of a rail, named as on a Spark: rocep1s0f0 for enp1s0f0np0."""
        return f"roce{self.name[2:].rpartition('np')[0]}" if self.fabric.startswith("rail") else None


@dataclass(frozen=True)
class Node:
    """One simulated Spark: its name, its position among the nodes and its NICs."""

    name: str
    index: int
    nics: tuple[Nic, ...]

    @property
    def is_head(self) -> bool:
        """Whether it is the one on the management network."""
        return self.index == 0

    @property
    def rails(self) -> tuple[Nic, ...]:
        """The NICs of the fabric between the nodes."""
        return tuple(nic for nic in self.nics if nic.fabric.startswith("rail"))

    @property
    def ssh_address(self) -> str:
        """Where its sshd is reached: by the operator for the head, from the head for a worker."""
        return (self.nics if self.is_head else self.rails)[0].address.partition("/")[0]


def short_id(instance: str) -> str:
    """Six hexadecimal digits for an instance's links, whose names can't be longer than 15 characters."""
    return hashlib.sha256(instance.encode()).hexdigest()[:6]


def nodes(instance: str, workers: int, worker_interfaces: tuple[str, ...] = DEFAULT_INTERFACES) -> list[Node]:
    """The nodes of an instance, the head first.

    Args:
        instance: Its name; the MAC addresses come from it.
        workers: How many nodes there are besides the head.
        worker_interfaces: The names of the rails on the workers.

    Returns:
        head, worker, worker2 and so on.
    """
    seed = short_id(instance)

    def mac(index: int, position: int) -> str:
        return ":".join(["02", seed[:2], seed[2:4], seed[4:], f"{index:02x}", f"{position:02x}"])

    def rails(index: int, names: tuple[str, ...]) -> tuple[Nic, ...]:
        return tuple(
            Nic(
                name=name,
                fabric=f"rail{position}",
                address=f"{ipaddress.ip_network(_RAILS[position])[_FIRST_HOST + index]}/24",
                mac=mac(index, position),
                mtu=_MTU,
            )
            for position, name in enumerate(names)
        )

    def decoy(index: int) -> Nic:
        """Owns the default route and leads nowhere: whoever guesses the address by route guesses wrong."""
        if index == 0:
            return Nic("enP7s7", "mgmt", f"{HEAD_ADDRESS}/24", mac(index, 9), gateway="10.1.230.1")
        subnet = f"10.{40 + index}.0"
        return Nic("wlP9s9", "wifi", f"{subnet}.{20 + index}/24", mac(index, 9), gateway=f"{subnet}.1")

    head = Node("head", 0, (decoy(0), *rails(0, DEFAULT_INTERFACES)))
    others = [
        Node(
            "worker" if index == 1 else f"worker{index}",
            index,
            (decoy(index), *rails(index, worker_interfaces)),
        )
        for index in range(1, workers + 1)
    ]
    return [head, *others]
