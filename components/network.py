"""The RoCE network: on every node, are its rails up, and do they reach the others with full-size frames?"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components import leaf
from components.node import Node
from components.remote import run
from components.settings import Settings


class Network(pulumi.ComponentResource):
    """The rails between the nodes; nothing for a single node."""

    def __init__(
        self, settings: Settings, nodes: Sequence[Node], *, after: Sequence[pulumi.Resource]
    ) -> None:
        """Check the link from each node to all others.

        Args:
            settings: the deployment.
            nodes: its nodes.
            after: what must be done before: the gate that has seen every node.
        """
        super().__init__("spark-vllm:index:Network", "network")
        self.links: list[pulumi.Resource] = []
        if len(nodes) > 1:
            head, *workers = nodes
            checked = [self._check(settings, worker, nodes, after) for worker in workers]
            # The head's comes last and stands for all: each step after each link would grow as their product.
            self.links = [self._check(settings, head, nodes, [*after, *checked])]
        self.register_outputs({})

    def _check(
        self, settings: Settings, node: Node, nodes: Sequence[Node], after: Sequence[pulumi.Resource]
    ) -> pulumi.Resource:
        return run(
            f"link-{node.name}",
            "link.sh",
            node=node,
            inputs={
                "NODE": node.name,
                "RAILS": _rails(node, nodes),
                "MTU": str(settings.network.mtu),
                "SYSFS": settings.network.sysfs,
            },
            opts=leaf.step(self, after=after),
        )


def _rails(node: Node, nodes: Sequence[Node]) -> str:
    lines = []
    for index, rail in enumerate(node.settings.rails):
        peers = ",".join(str(peer.settings.rails[index].address.ip) for peer in nodes if peer is not node)
        lines.append(f"{rail.interface} {rail.address} {rail.rdma_device or '-'} {peers}")
    return "\n".join(lines)
