"""The client of the control store that `ray status` uses too."""

from __future__ import annotations

from typing import NamedTuple

from ray._cluster import Client


class GcsNodeInfo(NamedTuple):
    """What is known of a node."""

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
                node["NodeManagerAddress"], 0 if node["Alive"] else 1, dict(node["Resources"])
            )
            for node in self._client.nodes(timeout)
        }
