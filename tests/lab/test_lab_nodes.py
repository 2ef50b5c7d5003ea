"""What the lab promises: the topology of two Sparks, reboots and faults like theirs, a host left alone."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING

import pytest

from lab.build import base_image
from lab.shell import LabError, attempt, run
from tests.lab.host import host_network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.instance import Lab

pytestmark = pytest.mark.lab
RAILS = {"enp1s0f0np0": "192.168.200", "enP2p1s0f0np0": "192.168.201"}


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    lab.up()


def addresses(lab: Lab, node: str) -> dict[str, tuple[str, int]]:
    links = json.loads(lab.root(node, "ip", "-json", "-4", "address", "show"))
    return {link["ifname"]: (link["addr_info"][0]["local"], link["mtu"]) for link in links}


def reaches(lab: Lab, node: str, address: str) -> bool:
    try:
        lab.root(node, "ping", "-c1", "-W1", "-M", "do", "-s", "8972", address)
    except LabError:
        return False
    return True


def host_key_seen(lab: Lab, node: str) -> str:
    scan = lab.root("head", "ssh-keyscan", "-t", "ed25519", lab.node(node).ssh_address)
    return next(line.split(maxsplit=1)[1] for line in scan.splitlines() if "ssh-ed25519" in line)


@pytest.mark.parametrize("node", ["head", "worker"])
def test_operator_reaches_each_node_as_its_user(lab: Lab, node: str) -> None:
    assert lab.ssh(node, "hostname; id -un; sudo id -un; docker version -f ok").split() == [
        node, "aurora", "root", "ok",
    ]  # fmt: skip


@pytest.mark.parametrize(("node", "host"), [("head", 12), ("worker", 13)])
def test_rails_have_address_and_mtu(lab: Lab, node: str, host: int) -> None:
    found = addresses(lab, node)

    assert {name: found[name] for name in RAILS} == {
        name: (f"{net}.{host}", 9000) for name, net in RAILS.items()
    }


@pytest.mark.parametrize(("node", "interface"), [("head", "enP7s7"), ("worker", "wlP9s9")])
def test_default_route_is_a_decoy(lab: Lab, node: str, interface: str) -> None:
    assert f"dev {interface}" in lab.root(node, "ip", "route", "get", "1.1.1.1")
    assert f"127.0.1.1\t{node}" in lab.root(node, "cat", "/etc/hosts")


def test_jumbo_frames_pass_between_the_nodes(lab: Lab) -> None:
    assert all(reaches(lab, "head", f"{net}.13") for net in RAILS.values())
    assert all(reaches(lab, "worker", f"{net}.12") for net in RAILS.values())


def test_nothing_but_the_head_leads_to_the_worker(lab: Lab) -> None:
    def operator_opens(address: str) -> bool:
        connect = ["timeout", "3", "bash", "-c", f"</dev/tcp/{address}/22"]
        try:
            lab.outer.inside(*connect, network=lab.access.network)
        except LabError:
            return False
        return True

    assert operator_opens("10.1.230.180")
    assert not operator_opens("192.168.200.13")
    assert "10.1.230." not in lab.root("worker", "ip", "-o", "-4", "address", "show")
    assert not reaches(lab, "worker", "10.1.230.180")


def test_registry_serves_the_head_alone(lab: Lab) -> None:
    url = f"http://{lab.status()['registry']}/v2/"

    assert lab.root("head", "curl", "-sS", "-m5", url) == "{}"
    with pytest.raises(LabError):
        lab.root("worker", "curl", "-sS", "-m5", url)


def test_hub_serves_the_head_alone(lab: Lab) -> None:
    commit = lab.hub.publish("lab/words", {"config.json": b"{}"})
    url = f"{lab.status()['hub']}/lab/words/resolve/{commit}/config.json"

    assert lab.root("head", "curl", "-sS", "-m5", url) == "{}"
    with pytest.raises(LabError):
        lab.root("worker", "curl", "-sS", "-m5", url)


def test_head_pulls_a_pushed_image_by_digest(lab: Lab) -> None:
    image = base_image(lab.outer)

    reference = lab.push(image)
    lab.docker("head", "pull", "--quiet", reference)

    assert lab.docker("head", "run", "--rm", "--network=host", "--ipc=host", reference, "hostname") == "head"
    assert lab.push(image) == reference


def test_loaded_image_runs_on_the_worker(lab: Lab) -> None:
    image = base_image(lab.outer)

    lab.load("worker", image)

    assert lab.docker("worker", "run", "--rm", "--network=host", image, "hostname") == "worker"


def test_rdma_facts_look_like_a_sparks(lab: Lab) -> None:
    root = f"{lab.status()['sysfs']}/class/infiniband"

    assert lab.ssh("worker", f"cat {root}/*/ports/1/state").splitlines() == ["4: ACTIVE"] * 2
    assert lab.ssh("worker", f"ls {root}/rocep1s0f0/device/net") == "enp1s0f0np0"


def test_api_port_leads_to_the_head(lab: Lab) -> None:
    port = lab.record.api_port
    lab.root("head", "systemd-run", "--unit=answer", "python3", "-m", "http.server", str(port))
    lab.root("head", "curl", "-sS", "--retry", "9", "--retry-connrefused", "-o/dev/null", f"localhost:{port}")

    answer = attempt(["curl", "-sS", "-m5", "-o/dev/null", "-w%{http_code}", f"http://127.0.0.1:{port}/"])
    lab.root("head", "systemctl", "stop", "answer")

    assert answer.stdout == b"200"


@pytest.mark.parametrize("node", ["head", "worker"])
def test_reboot_is_a_reboot_and_keeps_what_a_disk_keeps(lab: Lab, node: str) -> None:
    key = host_key_seen(lab, node)
    lab.root(node, "touch", "/run/before", "/home/aurora/kept")

    lab.reboot(node)

    assert host_key_seen(lab, node) == key == lab.status()["nodes"][node]["hostKey"]
    assert lab.ssh(node, "ls /home/aurora") == "kept"
    with pytest.raises(LabError):
        lab.root(node, "ls", "/run/before")
    assert addresses(lab, node)["enp1s0f0np0"][1] == 9000
    assert reaches(lab, "head", "192.168.200.13")


def test_pulled_cable_loses_the_carrier(lab: Lab) -> None:
    lab.unplug("worker", 1)

    assert lab.root("worker", "cat", "/sys/class/net/enP2p1s0f0np0/carrier") == "0"
    assert not reaches(lab, "head", "192.168.201.13")
    assert reaches(lab, "head", "192.168.200.13")

    lab.plug("worker", 1)
    lab.wait_ready("worker")

    assert reaches(lab, "head", "192.168.201.13")


def test_dropped_packets_vanish_and_come_back(lab: Lab) -> None:
    lab.drop("worker", "192.168.200.12")
    assert not reaches(lab, "head", "192.168.200.13")

    lab.undrop("worker", "192.168.200.12")
    assert reaches(lab, "head", "192.168.200.13")


def test_frozen_node_accepts_and_says_nothing(lab: Lab) -> None:
    lab.freeze("worker")
    with pytest.raises(LabError):
        lab.ssh("worker", "true", timeout=10)

    lab.thaw("worker")
    assert lab.ssh("worker", "hostname") == "worker"


def test_up_boots_a_node_that_lost_its_power(lab: Lab) -> None:
    lab.power_off("worker")

    lab.up()

    assert lab.ssh("worker", "hostname") == "worker"


def test_up_renews_relays_and_agent(lab: Lab) -> None:
    for daemon in lab.access.daemons(lab.record):
        daemon.stop(lab.outer)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", lab.record.ssh_port), timeout=5)

    lab.up()

    assert lab.ssh("head", "hostname") == "head"
    agent = {**lab.environment(), "PATH": "/usr/bin"}
    assert f"{lab.name} operator" in run(["ssh-add", "-l"], env=agent)


def test_up_on_a_running_lab_is_quick_and_changes_nothing(lab: Lab) -> None:
    started = lab.outer.docker("inspect", "--format={{.State.StartedAt}}", lab.container("head"))

    begin = time.monotonic()
    lab.up()

    assert time.monotonic() - begin < 10
    assert lab.outer.docker("inspect", "--format={{.State.StartedAt}}", lab.container("head")) == started


def test_up_refuses_to_turn_into_another_lab(lab: Lab) -> None:
    with pytest.raises(LabError, match="down first"):
        lab.up(workers=3)


def test_host_is_left_as_it_was(lab: Lab, host_before: dict[str, str]) -> None:
    assert lab.status()["nodes"]["head"]["state"] == "running"
    assert host_network() == host_before
