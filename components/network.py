"""The RoCE network: the rails of each node as the settings say, and the check of the links between them.

- `network-<node>`: address and MTU of each rail. What is right is left alone; a change goes into one netplan
  file of our own, and is undone on the node unless it is confirmed in time
- `network-confirm-<node>`: the confirmation, over a new connection
- `link-<node>`: do the rails reach the others with full-size frames?

What Pulumi has recorded, and what it then runs again. A change that cuts the way to the node fails in
`network-<node>` itself: the script waits for an acknowledgement of its own output, undoes the change when
none comes, and ends in an error over the connection that works again; nothing is recorded, so the next `up`
tries again. What is left is a change that was recorded and never confirmed, because `pulumi` was killed in
between: the node undoes it, and since the confirmation was not recorded, the next `up` runs that one, which
makes the change again and confirms it itself. A confirmation also runs whenever `network-<node>` changed
something, for whatever reason that one ran.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import pulumi

from components import leaf
from components.node import Node
from components.remote import compose, hold, run, value
from components.settings import Node as NodeSettings
from components.settings import Settings

DEADMAN_SECONDS = 180
"""After which a node undoes a change that nobody confirmed; `network-<node>` itself ends before."""
REMOVE_DELAY_SECONDS = 4
"""Between the answer of a node and the removal of the addresses that may carry it."""


class Network(pulumi.ComponentResource):
    """The rails between the nodes; nothing for a single node."""

    def __init__(
        self, settings: Settings, nodes: Sequence[Node], *, after: Sequence[pulumi.Resource]
    ) -> None:
        """Configure the rails, the head's first, and check the link from each node to all others.

        Args:
            settings: the deployment.
            nodes: its nodes, the head first.
            after: what must be done before: the gate that has seen every node.
        """
        super().__init__("spark-vllm:index:Network", "network")
        self._settings = settings
        self.links: list[pulumi.Resource] = []
        if len(nodes) > 1:
            head, *workers = nodes
            # One node after the other: what fails, fails on one of them. The last stands for all.
            configured: list[pulumi.Resource] = []
            for node in nodes:
                configured = [self._configure(node, [*after, *configured])]
            checked = [self._check(worker, [*after, *configured]) for worker in workers]
            # The head's comes last and stands for all: each step after each link would grow as their product.
            self.links = [self._check(head, [*after, *checked])]
        self.register_outputs({})

    def _configure(self, node: Node, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        # Also where nothing is managed: a deleted resource would run its old `remove`.
        inputs = network_inputs(
            self._settings, node.settings, project=pulumi.get_project(), stack=pulumi.get_stack()
        )
        changed = hold(
            f"network-{node.name}",
            "network.sh",
            node=node,
            inputs=inputs,
            opts=leaf.step(self, after=[node.preflight, *after]),
        )
        if not self._settings.network.manage:
            return changed
        return run(
            f"network-confirm-{node.name}",
            "network.sh",
            verb="confirm",
            node=node,
            inputs=inputs,
            triggers=[value(changed, "at")],
            opts=leaf.step(self, after=[changed]),
        )

    def _check(self, node: Node, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        return run(
            f"link-{node.name}",
            "link.sh",
            node=node,
            inputs=link_inputs(self._settings, node.settings),
            opts=leaf.step(self, after=after),
        )


def link_inputs(settings: Settings, node: NodeSettings) -> dict[str, str]:
    """What link.sh needs to know on a node."""
    rails = []
    for index, rail in enumerate(node.rails):
        peers = ",".join(str(peer.rails[index].address.ip) for peer in settings.nodes if peer is not node)
        rails.append(
            f"{rail.interface} {rail.address} {rail.address.network} {rail.rdma_device or '-'} {peers}"
        )
    return {
        "NODE": node.name,
        "RAILS": "\n".join(rails),
        "MTU": str(settings.network.mtu),
        "SYSFS": settings.network.sysfs,
        "GID_INDEX": "" if node.gid_index is None else str(node.gid_index),
    }


def network_inputs(settings: Settings, node: NodeSettings, *, project: str, stack: str) -> dict[str, str]:
    """What network.sh needs to know on a node, so that a stack's own file can be told from others."""
    network = settings.network
    behind = node.ssh.jump is not None
    shared = {
        "NODE": node.name,
        "STACK": stack,
        "MTU": str(network.mtu),
        "RAILS": "\n".join(
            f"{rail.interface} {rail.address} {hop.interface if behind else '-'}"
            for rail, hop in zip(node.rails, settings.head.rails, strict=True)
        ),
    }
    root = {
        "PROJECT": project,
        "TAKE_OVER": _shell(network.take_over),
        "DEADMAN": str(DEADMAN_SECONDS),
        "DELAY": str(REMOVE_DELAY_SECONDS),
    }
    return {
        **shared,
        "MANAGE": _shell(network.manage),
        "REMOVE": _shell(network.remove_on_destroy),
        "STRANDED": "" if behind else " ".join(stranded(settings)),
        "ROOT": compose("network-root.sh", {**shared, **root}),
    }


def stranded(settings: Settings) -> list[str]:
    """Addresses of workers behind the head that none of the head's rails reaches, once they are as set."""
    hosts = []
    for worker in settings.workers:
        try:
            host = ipaddress.IPv4Address(worker.ssh.host)
        except ipaddress.AddressValueError:
            continue
        if worker.ssh.jump and not any(host in rail.address.network for rail in settings.head.rails):
            hosts.append(str(host))
    return hosts


def _shell(flag: bool) -> str:
    return "true" if flag else "false"
