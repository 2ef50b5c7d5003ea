"""The rows of the table that begin with the network, on the real engine; and what destroy leaves of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from lab.deployment import Deployment, Run
from lab.instance import Lab
from tests.deployment.interruptions import kill_at, repaired
from tests.deployment.rails import FIRST, FOREIGN, TWIN, Rails, done, eventually
from tests.deployment.stack import (
    ALL_OF_RAY,
    ANY,
    WORKER_AND_VLLM,
    Config,
    ask,
    by,
    containers,
    edit,
    restarts,
    settle,
    unchanged,
)

pytestmark = pytest.mark.lab

NODES = ("head", "worker")
LAB_FILES = ["10-lab.yaml", "40-cx7.yaml"]
MOVED = "192.168.201.99/24"
MTU = 1500
RAIL = pytest.mark.row(
    "a rail of one node",
    "its network, link check; that node's containers and what stands on them",
    "image, model",
)


@pytest.fixture(scope="module")
def stack(pair: Deployment) -> Iterator[Deployment]:
    """The pair, whose `destroy` puts the network back."""
    right = pair.config_file.read_text()
    edit(pair, lambda config: config["network"].update({"removeOnDestroy": True}))
    yield settle(pair)
    pair.must("destroy")
    pair.config_file.write_text(right)
    as_delivered(pair.lab)


def as_delivered(lab: Lab) -> None:
    """Wait until the nodes' network is what it was before the program."""

    def restored(node: Rails) -> bool:
        files = node.root("ls /etc/netplan").split()
        return files == LAB_FILES and [node.mtu(rail) for rail in (FIRST, TWIN)] == [9000, 9000]

    for name in NODES:
        eventually(partial(restored, Rails(lab, name)))
        lab.wait_ready(name)


def took(run: Run, *names: str) -> list[str]:
    """These resources in the order in which they were made or changed."""
    ops = ("create", "update", "create-replacement")
    return [event.name for event in run.events if event.name in names and event.op in ops]


def test_a_foreign_file_stops_a_change_before_anything_else(stack: Deployment) -> None:
    before = containers(stack)
    edit(stack, lambda config: config["nodes"][1]["rails"][1].update({"address": MOVED}))
    run = stack.pulumi("up")
    assert run.status != 0
    assert f"{FOREIGN} already configures" in run.output
    assert "set network.takeOver: true" in run.output
    assert containers(stack) == before


def another_address(config: Config) -> None:
    config["network"]["takeOver"] = True
    config["nodes"][1]["rails"][1]["address"] = MOVED


@RAIL
def test_a_rail_of_one_node(stack: Deployment) -> None:
    run = restarts(stack, by(another_address), WORKER_AND_VLLM, touches={"network"})
    steps = ["network-worker", "network-confirm-worker", "link-worker", "worker", "vllm"]
    assert took(run, *steps) == steps
    assert MOVED in Rails(stack.lab).addresses()
    assert Rails(stack.lab, "head").root("ls /etc/netplan").split() == LAB_FILES
    assert ask(stack).status_code == 200


def another_address_of_the_head(config: Config) -> None:
    config["network"]["takeOver"] = True
    config["nodes"][0]["rails"][1]["address"] = "192.168.201.98/24"


@RAIL
def test_a_rail_of_the_head(stack: Deployment) -> None:
    restarts(stack, by(another_address_of_the_head), ALL_OF_RAY, touches={"network"})
    assert "192.168.201.98/24" in Rails(stack.lab, "head").addresses()
    assert ask(stack).status_code == 200


def another_mtu(config: Config) -> None:
    config["network"].update({"takeOver": True, "mtu": MTU})


@pytest.mark.row("MTU", "network, link check; then all of Ray, vllm", "image, model")
def test_the_mtu(stack: Deployment) -> None:
    run = restarts(stack, by(another_mtu), ALL_OF_RAY, touches={"network"})
    steps = [f"network{verb}-{name}" for name in NODES for verb in ("", "-confirm")]
    steps += ["link-worker", "link-head", "head", "worker", "vllm"]
    assert took(run, *steps) == steps
    for name in NODES:
        assert [Rails(stack.lab, name).mtu(rail) for rail in (FIRST, TWIN)] == [MTU, MTU]
    assert ask(stack).status_code == 200


@RAIL
def test_the_rail_that_carries_ssh_is_changed_by_the_recipe(stack: Deployment) -> None:
    worker, new = Rails(stack.lab), "192.168.200.99"

    def another_way_in(config: Config) -> None:
        config["network"]["takeOver"] = True
        config["nodes"][1]["rails"][0]["address"] = f"{new}/24"
        config["nodes"][1]["ssh"]["host"] = worker.link_local()

    restarts(stack, by(another_way_in), WORKER_AND_VLLM, touches=ANY)
    unchanged(stack)
    assert f"{new}/24" in worker.addresses()
    to_the_new_one = by(lambda config: config["nodes"][1]["ssh"].update({"host": new}))
    restarts(stack, to_the_new_one, [], touches={"network"})
    assert ask(stack).status_code == 200


@pytest.mark.fault("`pulumi` is killed in the middle")
def test_a_change_of_a_rail_that_was_killed_before_its_confirmation_is_brought_to_its_end(
    stack: Deployment,
) -> None:
    address = "192.168.201.97/24"
    edit(stack, lambda config: config["network"].update({"takeOver": True}))
    edit(stack, lambda config: config["nodes"][1]["rails"][1].update({"address": address}))
    kill_at(stack, r"network-confirm-worker creating")
    repaired(stack)
    assert address in Rails(stack.lab).addresses()


def test_destroy_takes_the_network_last(stack: Deployment) -> None:
    edit(stack, another_mtu)
    stack.must("up")
    assert Rails(stack.lab).mtu() == MTU
    run = stack.must("destroy")
    gone = [event.name for event in run.events if event.type.startswith(("docker:", "command:"))]
    for name in ("vllm", "worker", "head", "tmp-worker"):
        assert gone.index(name) < gone.index("network-worker")
    assert gone.index("network-worker") < gone.index("network-head")
    as_delivered(stack.lab)
    done(Rails(stack.lab).link(), "rails=ok")


def test_a_worker_without_an_address_is_deployed_by_its_link_local_one(stack: Deployment) -> None:
    worker = Rails(stack.lab)
    worker.root(f"mv {FOREIGN} /root/40-cx7.yaml; netplan apply")
    worker.root(
        f"for rail in {FIRST} {TWIN}; do ip -4 addr flush dev $rail; ip link set $rail mtu 1500 up; done"
    )
    try:
        edit(stack, lambda config: config["nodes"][1]["ssh"].update({"host": worker.link_local()}))
        stack.must("up")
        assert ask(stack).status_code == 200
        assert len(worker.addresses()) == len((FIRST, TWIN))
        unchanged(stack)
        stack.must("destroy")
        eventually(lambda: worker.addresses() == [])
    finally:
        worker.root(f"mv /root/40-cx7.yaml {FOREIGN}; netplan apply")
