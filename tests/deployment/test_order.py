"""The order of what restarts, five times in a row: it must not be a matter of luck."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.deployment import Deployment
from tests.deployment.stack import (
    ALL_OF_RAY,
    HEAD,
    SERVER,
    TURNS,
    VLLM,
    WORKER,
    WORKER_AND_VLLM,
    Waves,
    another_env,
    another_flag,
    ask,
    by,
    restarts,
    unchanged,
)

pytestmark = pytest.mark.lab

ROWS = [
    pytest.param(by(another_flag), VLLM, id="a vLLM flag", marks=SERVER),
    pytest.param(by(another_env(1)), WORKER_AND_VLLM, id="env of one Ray worker", marks=WORKER),
    pytest.param(by(another_env(0)), ALL_OF_RAY, id="env of the Ray head", marks=HEAD),
]


@pytest.mark.parametrize(("change", "expected"), ROWS)
@pytest.mark.report("R5", "P7")
def test_a_change_replaces_the_same_in_the_same_order_each_time(
    deployed: Deployment, change: Callable[[Deployment], None], expected: Waves
) -> None:
    for turn in range(TURNS):
        restarts(deployed, change, expected, previews=turn in (0, TURNS - 1))
    assert ask(deployed).status_code == 200
    unchanged(deployed)
