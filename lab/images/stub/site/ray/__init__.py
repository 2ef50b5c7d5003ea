"""A stand-in for Ray: the part that a deployment of vLLM sees, over real TCP between real nodes."""

from __future__ import annotations

import os
import time
from typing import Any

from ray import _cluster, exceptions
from ray._version import __version__

__all__ = ["__version__", "cluster_resources", "exceptions", "init", "is_initialized", "nodes", "shutdown"]

_FIND_SECONDS = float(os.environ.get("STUB_RAY_FIND_S", "10"))
_connection: _cluster.Client | None = None


def init(address: str | None = None, **_: Any) -> None:  # noqa: ANN401
    """Connect to a running cluster through the raylet of this machine.

    Args:
        address: `host:port` of the head; the cluster of this machine if None or "auto".
        _: What else the real one takes.

    Raises:
        ConnectionError: There is no such cluster.
        RuntimeError: This process does not see a raylet of that cluster.
    """
    global _connection  # noqa: PLW0603
    head = os.environ.get("RAY_ADDRESS") if address in (None, "auto") else address
    head = head or _cluster.current_head()
    if head is None:
        raise ConnectionError(
            "Could not find any running Ray instance. Please specify the one to connect to."
        )
    client = _cluster.Client(head)
    end = time.monotonic() + _FIND_SECONDS
    try:
        while not _cluster.local_raylets(client.nodes()):
            if time.monotonic() > end:
                raise RuntimeError(
                    "No node info found matching attributes: '' when trying to resolve node to connect to."
                )
            time.sleep(0.5)
    except OSError as error:
        raise ConnectionError(f"Failed to connect to Ray cluster at {head}") from error
    _connection = client


def is_initialized() -> bool:
    """Whether `init` has been called."""
    return _connection is not None


def nodes() -> list[dict[str, Any]]:
    """All nodes that the cluster has known, the dead ones too.

    Raises:
        RaySystemError: There is no connection.
    """
    if _connection is None:
        raise exceptions.RaySystemError("Ray has not been started yet. You can start Ray with 'ray.init()'.")
    return _connection.nodes()


def cluster_resources() -> dict[str, float]:
    """The sum of what the nodes that are alive have."""
    total: dict[str, float] = {}
    for node in nodes():
        if node["Alive"]:
            for name, amount in node["Resources"].items():
                total[name] = total.get(name, 0.0) + amount
    return total


def shutdown() -> None:
    """Forget the connection."""
    global _connection  # noqa: PLW0603
    _connection = None
