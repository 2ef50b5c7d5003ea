"""Settings of all tests, and how `make test` deals them out to processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# The machine that runs the tests may be busy: a slow example is no failure.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

LONGEST_FIRST = ("real", "deployment", "lab", "engine", "images")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of one lab instance in one process, and start what takes longest first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)), append=False)
    items.sort(key=lambda item: _rank(_group(item)))


def _group(item: pytest.Item) -> str:
    if mark := item.get_closest_marker("xdist_group"):
        return str(mark.args[0])
    if item.get_closest_marker("real"):
        return "real"
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _rank(group: str) -> int:
    return LONGEST_FIRST.index(group) if group in LONGEST_FIRST else len(LONGEST_FIRST)
