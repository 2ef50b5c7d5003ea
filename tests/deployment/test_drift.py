"""What died behind the program's back, and how `up --refresh` brings it back: rows of the README's table."""

from __future__ import annotations

import pytest

from lab.deployment import Deployment
from tests.deployment.stack import (
    ALL_OF_RAY,
    DEAD_WORKER,
    TURNS,
    VLLM,
    WORKER_AND_VLLM,
    Waves,
    ask,
    containers,
    killed,
    replaced,
    restarts,
    unchanged,
)

pytestmark = pytest.mark.lab

DEAD_HEAD = pytest.mark.row("the Ray head's container died (`up --refresh`)", "all of Ray, vllm")
DEAD_VLLM = pytest.mark.row("vllm's container died (`up --refresh`)", "vllm")

DRIFT = [
    pytest.param("ray-head", ALL_OF_RAY, id="the Ray head's container", marks=DEAD_HEAD),
    pytest.param("vllm", VLLM, id="vllm's container", marks=DEAD_VLLM),
]


@pytest.mark.parametrize(("name", "expected"), DRIFT)
def test_what_died_is_replaced_with_what_stands_on_it(
    deployed: Deployment, name: str, expected: Waves
) -> None:
    run = restarts(deployed, killed("head", name), expected, refresh=True)
    assert {event.op for event in run.events if event.name == "check-engine"} <= {"same", "refresh"}
    assert ask(deployed).status_code == 200


@DEAD_WORKER
@pytest.mark.report("R6")
def test_a_dead_worker_is_replaced_with_what_stands_on_it_each_time(deployed: Deployment) -> None:
    for turn in range(TURNS):
        run = restarts(
            deployed,
            killed("worker", "ray-worker"),
            WORKER_AND_VLLM,
            refresh=True,
            previews=turn in (0, TURNS - 1),
        )
        assert {event.op for event in run.events if event.name == "check-engine"} <= {"same", "refresh"}
    assert ask(deployed).status_code == 200


@DEAD_WORKER
def test_a_container_that_is_gone_is_made_again(deployed: Deployment) -> None:
    before = containers(deployed)
    deployed.lab.docker("worker", "rm", "-f", "ray-worker")
    steps = replaced(deployed.must("up", "--refresh"))
    # It has nothing left to delete, so the engine is free to create it before it stops what stood on it.
    assert sorted(steps) == ["create vllm", "create worker", "delete vllm"]
    assert steps.index("create worker") < steps.index("create vllm")
    assert containers(deployed)["ray-head"] == before["ray-head"]
    unchanged(deployed)
