"""The client of the control store that `ray status` uses too."""

from __future__ import annotations

from typing import NamedTuple

from ray._cluster import Client


class GcsNodeInfo(NamedTuple):
    """What is known of a node."""

    node_id: bytes
    node_name: str
    node_manager_address: str
    state: int
    resources_total: dict[str, float]


class GcsClient:
    """A connection to the head, without a raylet."""

    def __init__(self, address: str) -> None:
        """Connect: a wrong token fails here."""
        self._client = Client(address)
        self._client.nodes()

    def get_all_node_info(self, timeout: float | None = None) -> dict[str, GcsNodeInfo]:
        """Every node that the cluster has known, by its id."""
        return {
            node["NodeID"]: GcsNodeInfo(
                bytes.fromhex(node["NodeID"]),
                node["NodeName"],
                node["NodeManagerAddress"],
                0 if node["Alive"] else 1,
                dict(node["Resources"]),
            )
            for node in self._client.nodes(timeout)
        }

    def drain_nodes(self, node_ids: list[bytes], timeout: float | None = None) -> list[bytes]:  # noqa: ARG002
        """Let nodes end, busy or not.

        Returns:
            The nodes that were asked.
        """
        self._client.post("shut_down", [node_id.hex() for node_id in node_ids])
        return node_ids
