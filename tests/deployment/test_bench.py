"""What can be shared of a pair's SSH connections is shared."""

from __future__ import annotations

import pytest

from lab.bench import connections
from lab.deployment import Deployment

pytestmark = pytest.mark.lab


def test_an_update_makes_one_handshake_for_each_way_to_a_node(deployed: Deployment) -> None:
    unchanged, flag = connections.of(deployed)
    # one at the head and one at the worker, by Docker's plugin
    assert unchanged.value == 2
    # and one more of each by the command plugin, which knows nothing of the other's
    assert flag.value <= 4
