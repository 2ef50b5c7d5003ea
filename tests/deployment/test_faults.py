"""What breaks while the pair serves: it comes back by itself, or says that it has given up. Rows of docs/faults.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from lab.deployment import MODEL, Deployment
from lab.instance import Lab
from tests.deployment.rails import eventually
from tests.deployment.stack import VLLM, answers, containers, edit, replaced, settle, unchanged

pytestmark = pytest.mark.lab

fault = pytest.mark.fault
ATTEMPTS = 3
RECOVERY_SECONDS = 120
Harm = Callable[[Lab], None]


@pytest.fixture(scope="module")
def served(pair: Deployment) -> Iterator[Deployment]:
    """The pair, up, with few attempts."""
    right = pair.config_file.read_text()
    edit(pair, lambda config: config.update(recovery={"attempts": ATTEMPTS, "healthyAfter": 10}))
    yield settle(pair)
    pair.config_file.write_text(right)


def crash(node: str, container: str) -> Harm:
    """Kill a container's first process, as the kernel does that runs out of memory."""

    def harm(lab: Lab) -> None:
        pid = lab.docker(node, "inspect", "--format={{.State.Pid}}", container).strip()
        lab.root(node, "kill", "-KILL", pid)

    return harm


def dockerd(*nodes: str) -> Harm:
    """Restart the engine of nodes."""

    def harm(lab: Lab) -> None:
        for node in nodes:
            lab.root(node, "systemctl", "restart", "docker")

    return harm


def reboot(node: str) -> Harm:
    return lambda lab: lab.reboot(node)


def power_cut(*nodes: str) -> Harm:
    """Cut the power of nodes, and let them boot one after the other."""

    def harm(lab: Lab) -> None:
        for node in nodes:
            lab.power_off(node)
        for node in nodes:
            lab.power_on(node)

    return harm


def starts(deployment: Deployment) -> dict[str, str]:
    """When each container has begun."""
    return {name: started for name, (_, started) in containers(deployment).items()}


HARMS = [
    pytest.param(crash("head", "vllm"), {"vllm"}, id="vllm", marks=fault("vllm crashes")),
    pytest.param(
        crash("worker", "ray-worker"),
        {"ray-worker", "vllm"},
        id="ray worker",
        marks=fault("a Ray container crashes"),
    ),
    pytest.param(
        crash("head", "ray-head"),
        {"ray-head", "ray-worker", "vllm"},
        id="ray head",
        marks=fault("a Ray container crashes"),
    ),
    pytest.param(
        dockerd("worker"), {"ray-worker", "vllm"}, id="dockerd of the worker", marks=fault("dockerd restarts")
    ),
    pytest.param(
        dockerd("head"), {"ray-head", "vllm"}, id="dockerd of the head", marks=fault("dockerd restarts")
    ),
    pytest.param(reboot("worker"), {"ray-worker", "vllm"}, id="worker reboots", marks=fault("a node reboots")),
    pytest.param(reboot("head"), {"ray-head", "vllm"}, id="head reboots", marks=fault("a node reboots")),
    pytest.param(
        power_cut("worker", "head"),
        {"ray-head", "ray-worker", "vllm"},
        id="both, the worker first",
        marks=fault("both nodes lose their power"),
    ),
    pytest.param(
        power_cut("head", "worker"),
        {"ray-head", "ray-worker", "vllm"},
        id="both, the head first",
        marks=fault("both nodes lose their power"),
    ),
]


@pytest.mark.parametrize(("harm", "begun"), HARMS)
def test_the_pair_comes_back_by_itself(served: Deployment, harm: Harm, begun: set[str]) -> None:
    before, ids = starts(served), {name: number for name, (number, _) in containers(served).items()}
    harm(served.lab)
    began = time.monotonic()

    def is_back() -> bool:
        now = starts(served)
        return all(now[name] != before[name] for name in begun) and answers(served)

    eventually(is_back, RECOVERY_SECONDS)
    print(f"back after {time.monotonic() - began:.0f} s")
    assert {name: number for name, (number, _) in containers(served).items()} == ids
    unchanged(served)
