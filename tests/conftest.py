"""Settings of all tests, and how `make test` deals them out to processes."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# The machine that runs the tests may be busy: a slow example is no failure.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

LONGEST_FIRST = (
    "real",
    "trio",
    "failures",
    "faults",
    "order",
    "executors",
    "drift",
    "model",
    "restarts",
    "files",
    "deployment",
    "rows",
    "network",
    "lab",
    "engine",
    "images",
)
APART = {
    "test_vllm.py": "real",
    "test_faults.py": "faults",
    "test_order.py": "order",
    "test_restarts.py": "restarts",
    "test_executors.py": "executors",
    "test_nodes.py": "trio",
    **dict.fromkeys(("test_interruptions.py", "test_readiness.py", "test_destroy.py"), "failures"),
    **dict.fromkeys(("test_drift.py", "test_no_change.py"), "drift"),
    **dict.fromkeys(("test_image.py", "test_peers.py"), "files"),
    "test_model.py": "model",
    "test_network.py": "network",
    "test_network_rows.py": "rows",
}
OF_FILES = ("components", "scripts")
OF_TESTS = ("test_ray_nodes.py", "test_ready.py", "test_model_fetch.py", "test_model_send.py")
"""Files whose tests wait more than they work."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start what takes longest first."""
    ranks = {group: rank for rank, group in enumerate(LONGEST_FIRST)}
    last = len(ranks)
    items.sort(key=lambda item: ranks.get(group(item.nodeid), last + (item.path.name not in OF_TESTS)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:  # noqa: ANN401 - as the hook
    """Keep the tests that share the nodes of a lab in one process."""
    return Groups(config, log)


class Groups(LoadScopeScheduling):
    """Deals out whole groups."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """The group of a test: what its file is listed for, else its folder; less where nothing is shared."""
    path = PurePath(nodeid.partition("::")[0])
    if path.name in OF_TESTS:
        return nodeid
    return APART.get(path.name, path.name if path.parts[1] in OF_FILES else path.parts[1])
