"""The managed network on real nodes: what is refused, changed, kept over a boot, and undone.

The nodes' own netplan file, 40-cx7.yaml, names both rails: to the program it is somebody else's.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from components.network import network_inputs
from components.remote import compose
from components.settings import Settings, parse
from lab.deployment import Deployment
from lab.instance import Lab
from tests import samples
from tests.deployment.stack import Config, containers, edit, replaced, unchanged

pytestmark = pytest.mark.lab

NODES = ("head", "worker")
FIRST, SECOND = "enp1s0f0np0", "enP2p1s0f0np0"
FOREIGN = "/etc/netplan/40-cx7.yaml"
KEPT = f"{FOREIGN}.kept-by-spark-vllm-test"
OWN = "/etc/netplan/90-spark-vllm-test.yaml"
STATE = "/var/lib/spark-vllm/network-test"
UNIT = "spark-vllm-network-test"
WORKER_AND_VLLM = ["delete vllm", "delete worker", "create worker", "create vllm"]
ALL_OF_RAY = ["delete vllm", "delete worker", "delete head", "create head", "create worker", "create vllm"]
PUT_BACK = f"""
systemctl stop '{UNIT}-*.timer' 2>/dev/null
rm -rf {OWN} {STATE} {KEPT}
ip link delete br-test 2>/dev/null
ip -4 addr flush dev {SECOND}
netplan apply
"""


@pytest.fixture
def nodes(lab: Lab) -> Iterator[Lab]:
    """The nodes, whose network is put back past the program after the test."""
    before = {node: lab.root(node, "cat", FOREIGN) + "\n" for node in NODES}
    yield lab
    for node, text in before.items():
        traces = shell(lab, node, f"ls {OWN} {STATE} {KEPT} 2>/dev/null || true")
        if traces or shell(lab, node, f"cat {FOREIGN}") != text.rstrip("\n"):
            put(lab, text, node)
            shell(lab, node, PUT_BACK)
            lab.wait_ready(node)


@pytest.fixture
def deployed(pair: Deployment, nodes: Lab) -> Iterator[Deployment]:
    """The pair, deployed; its stack file is put back after the test."""
    assert pair.lab is nodes
    pair.must("up", "--refresh")
    right = pair.config_file.read_text()
    yield pair
    pair.config_file.write_text(right)


@pytest.fixture
def foreign(nodes: Lab) -> str:
    """What the worker's own netplan file says."""
    return nodes.root("worker", "cat", FOREIGN) + "\n"


def put(lab: Lab, text: str, node: str = "worker") -> None:
    lab.root(node, "install", "-m", "600", "/dev/stdin", FOREIGN, stdin=text.encode())


def shell(lab: Lab, node: str, words: str) -> str:
    return lab.root(node, "bash", "-c", words)


def addresses(lab: Lab, node: str, interface: str) -> list[str]:
    listed = json.loads(lab.root(node, "ip", "-json", "-4", "addr", "show", "dev", interface))
    return [f"{each['local']}/{each['prefixlen']}" for each in listed[0]["addr_info"]]


def mtu(lab: Lab, node: str, interface: str) -> int:
    return int(lab.root(node, "cat", f"/sys/class/net/{interface}/mtu"))


def until(lab: Lab, node: str, check: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while lab.outer.attempt("exec", lab.container(node), "bash", "-c", check).returncode:
        assert time.monotonic() < end, f"{node}: {check}"
        time.sleep(0.3)


def on(lab: Lab, node: str, verb: str, settings: Settings, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run network.sh on a node as the program does: over SSH, on standard input."""
    [where] = [each for each in settings.nodes if each.name == node]
    given = network_inputs(settings, where, project="spark-vllm", stack="test")
    given["ROOT"] = given["ROOT"].replace("DEADMAN=180\n", f"DEADMAN={inputs.pop('DEADMAN', '180')}\n", 1)
    return piped(lab, node, compose("network.sh", given | inputs), verb)


def link(lab: Lab, node: str) -> subprocess.CompletedProcess[str]:
    """Run link.sh on a node for both rails."""
    peer = 13 if node == "head" else 12
    rails = "\n".join(
        f"{interface} 192.168.{net}.{25 - peer}/24 192.168.{net}.0/24 - 192.168.{net}.{peer}"
        for interface, net in ((FIRST, 200), (SECOND, 201))
    )
    return piped(
        lab, node, compose("link.sh", {"NODE": node, "RAILS": rails, "MTU": "9000", "SYSFS": "/sys"})
    )


def piped(lab: Lab, node: str, script: str, verb: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ssh", "-F", lab.status()["sshConfig"], node, "--", f"timeout 120 bash -s -- {verb}"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def with_rail(rail: int, address: str, **network: bool) -> Settings:
    configuration = samples.config(network=network)
    configuration["nodes"][1]["rails"][rail]["address"] = address
    return parse(samples.raw(configuration))


def files(lab: Lab, node: str) -> str:
    return shell(
        lab, node, "find /etc/netplan /run/systemd/network /var/lib/spark-vllm -ls 2>/dev/null || true"
    )


@pytest.mark.parametrize("node", NODES)
def test_what_is_right_is_left_alone(nodes: Lab, node: str) -> None:
    before = files(nodes, node)
    result = on(nodes, node, "apply", samples.settings(), ROOT="exit 1")
    assert (result.returncode, result.stdout) == (0, "changed=none\n"), result.stderr
    assert files(nodes, node) == before


def test_the_rail_that_carries_ssh_is_refused_with_the_recipe(nodes: Lab) -> None:
    before = files(nodes, "worker")
    result = on(nodes, "worker", "apply", with_rail(0, "192.168.200.99/24", takeOver=True))
    assert result.returncode == 1
    assert f"SSH comes in by 192.168.200.13 on {FIRST}" in result.stderr
    assert f"%{FIRST} or 192.168.201.13" in result.stderr
    assert files(nodes, "worker") == before


def test_without_root_the_line_for_sudoers_is_named(nodes: Lab) -> None:
    shell(nodes, "worker", "echo 'aurora ALL=(ALL) PASSWD: ALL' >/etc/sudoers.d/zz-test")
    try:
        result = on(nodes, "worker", "apply", with_rail(1, "192.168.201.99/24", takeOver=True))
    finally:
        nodes.root("worker", "rm", "/etc/sudoers.d/zz-test")
    assert result.returncode == 1
    assert "aurora ALL=(root) NOPASSWD: /usr/bin/bash" in result.stderr
    assert addresses(nodes, "worker", SECOND) == ["192.168.201.13/24"]


def test_a_file_that_says_more_is_not_taken_over(nodes: Lab, foreign: str) -> None:
    put(nodes, f"{foreign}  bridges: {{br-test: {{}}}}\n")
    result = on(nodes, "worker", "apply", with_rail(1, "192.168.201.99/24", takeOver=True))
    assert result.returncode == 1
    assert f"{FOREIGN} configures {SECOND}, {FIRST} and also br-test" in result.stderr
    assert OWN not in files(nodes, "worker")


def test_a_rail_that_no_file_names_is_set_and_the_others_files_stay(nodes: Lab, foreign: str) -> None:
    first = foreign.partition(f"    {SECOND}:")[0]
    put(nodes, first)
    shell(nodes, "worker", f"ip -4 addr flush dev {SECOND}; ip link set {SECOND} mtu 1500")
    settings = samples.settings()
    result = on(nodes, "worker", "apply", settings)
    assert f"changed={SECOND}\n" in result.stdout, result.stderr
    assert "confirmed=yes\n" in on(nodes, "worker", "confirm", settings).stdout
    assert (addresses(nodes, "worker", SECOND), mtu(nodes, "worker", SECOND)) == (["192.168.201.13/24"], 9000)
    assert nodes.root("worker", "cat", FOREIGN).strip() == first.strip()
    assert FIRST not in nodes.root("worker", "cat", OWN)
    assert on(nodes, "worker", "apply", settings).stdout == "changed=none\n"


CUTTING_NETPLAN = """#!/bin/bash
/usr/sbin/netplan "$@" || exit
[[ $1 == apply ]] || exit 0
if ! iptables -D INPUT -s 192.168.200.12 -j DROP 2>/dev/null; then
  iptables -I INPUT -s 192.168.200.12 -j DROP
fi
"""


def test_a_change_that_cuts_the_way_is_undone_and_told(nodes: Lab) -> None:
    """A netplan whose first `apply` makes the node deaf to the head, and whose second cures it."""
    shim = "/usr/local/sbin/netplan"
    nodes.root("worker", "install", "-m", "755", "/dev/stdin", shim, stdin=CUTTING_NETPLAN.encode())
    settings = with_rail(1, "192.168.201.99/24", takeOver=True)
    try:
        result = on(nodes, "worker", "apply", settings, HEARD_SECONDS="4")
    finally:
        nodes.root("worker", "rm", shim)
        shell(nodes, "worker", "while iptables -D INPUT -s 192.168.200.12 -j DROP 2>/dev/null; do :; done")
    assert result.returncode == 1
    assert "cut the way by which it was asked for, so it was undone" in result.stderr
    assert addresses(nodes, "worker", SECOND) == ["192.168.201.13/24"]
    assert shell(nodes, "worker", "ls /etc/netplan").split() == ["10-lab.yaml", "40-cx7.yaml"]


def test_a_change_that_nobody_confirms_is_undone_and_made_again(nodes: Lab) -> None:
    settings = with_rail(1, "192.168.201.99/24", takeOver=True)
    result = on(nodes, "worker", "apply", settings, DEADMAN="5")
    assert f"changed={SECOND}\n" in result.stdout, result.stderr
    assert addresses(nodes, "worker", SECOND) == ["192.168.201.99/24"]
    until(nodes, "worker", f"[[ -e {STATE}/rolled-back ]]")
    assert addresses(nodes, "worker", SECOND) == ["192.168.201.13/24"]
    assert shell(nodes, "worker", "ls /etc/netplan").split() == ["10-lab.yaml", "40-cx7.yaml"]
    result = on(nodes, "worker", "confirm", settings)
    assert "confirmed=yes\n" in result.stdout, result.stderr
    assert "nothing confirmed it in time" in result.stderr
    assert addresses(nodes, "worker", SECOND) == ["192.168.201.99/24"]
    assert UNIT not in nodes.root("worker", "systemctl", "list-timers", "--no-legend")


@pytest.mark.parametrize("node", NODES)
def test_links_that_are_right(nodes: Lab, node: str) -> None:
    result = link(nodes, node)
    assert (result.returncode, result.stdout) == (0, "rails=ok\n"), result.stderr


def test_a_pulled_cable_is_seen_on_both_ends(nodes: Lab) -> None:
    nodes.unplug("worker", 1)
    try:
        until(nodes, "worker", f"[[ $(</sys/class/net/{SECOND}/operstate) != up ]]")
        here, there = link(nodes, "worker"), link(nodes, "head")
        change = on(nodes, "worker", "apply", samples.settings())
    finally:
        nodes.plug("worker", 1)
    until(nodes, "worker", f"[[ $(</sys/class/net/{SECOND}/operstate) == up ]]")
    nodes.wait_ready("worker")
    assert change.returncode == 1
    assert f"worker: {SECOND} has no carrier: is the cable in" in change.stderr
    assert here.returncode == there.returncode == 1
    assert f"worker: {SECOND} is " in here.stderr
    assert "is the cable in, on both ends?" in here.stderr
    assert f"192.168.201.13 does not answer on {SECOND} (192.168.201.12): is the cable in" in there.stderr


def test_an_mtu_of_one_end_is_seen_on_both(nodes: Lab) -> None:
    nodes.root("worker", "ip", "link", "set", SECOND, "mtu", "1500")
    try:
        here, there = link(nodes, "worker"), link(nodes, "head")
    finally:
        nodes.root("worker", "ip", "link", "set", SECOND, "mtu", "9000")
    assert here.returncode == there.returncode == 1
    assert f"worker: {SECOND} has MTU 1500, and network.mtu is 9000" in here.stderr
    assert f"192.168.201.13 answers on {SECOND}, but not to frames of 9000 bytes" in there.stderr


def another_address(config: Config) -> None:
    config["nodes"][1]["rails"][1]["address"] = "192.168.201.99/24"


def test_a_rail_of_one_node(deployed: Deployment) -> None:
    lab, before = deployed.lab, containers(deployed)
    edit(deployed, another_address)
    refused = deployed.pulumi("up")
    assert refused.status != 0
    assert f"{FOREIGN} already configures" in refused.output
    assert "set network.takeOver: true" in refused.output
    assert containers(deployed) == before

    edit(deployed, lambda config: config["network"].update({"takeOver": True}))
    assert replaced(deployed.must("up")) == WORKER_AND_VLLM
    assert containers(deployed)["ray-head"] == before["ray-head"]
    assert addresses(lab, "worker", SECOND) == ["192.168.201.99/24"]
    assert addresses(lab, "worker", FIRST) == ["192.168.200.13/24"]
    assert lab.root("worker", "stat", "-c", "%a %U", OWN).split() == ["600", "root"]
    assert lab.root("worker", "cat", OWN).startswith("# Made by Pulumi: project spark-vllm, stack test.")
    assert shell(lab, "head", "ls /etc/netplan").split() == ["10-lab.yaml", "40-cx7.yaml"]
    unchanged(deployed)


def test_the_mtu_of_all_over_a_boot_and_undone_by_destroy(deployed: Deployment) -> None:
    lab = deployed.lab
    edit(
        deployed,
        lambda config: config["network"].update({"mtu": 1500, "takeOver": True, "removeOnDestroy": True}),
    )
    assert replaced(deployed.must("up")) == ALL_OF_RAY
    assert [mtu(lab, node, rail) for node in NODES for rail in (FIRST, SECOND)] == [1500] * 4
    assert deployed.pulumi("preview", "--expect-no-changes").status == 0

    lab.reboot("worker")
    assert [mtu(lab, "worker", rail) for rail in (FIRST, SECOND)] == [1500] * 2

    deployed.must("destroy")
    for node in NODES:
        until(lab, node, f"[[ -e {FOREIGN} && ! -e {OWN} && ! -e {STATE} ]]")
        assert [mtu(lab, node, rail) for rail in (FIRST, SECOND)] == [9000] * 2
        lab.wait_ready(node)
    assert link(lab, "worker").returncode == 0


def test_a_worker_is_reached_by_its_link_local_address(deployed: Deployment) -> None:
    [found] = json.loads(deployed.lab.root("worker", "ip", "-json", "-6", "addr", "show", "dev", FIRST))
    [local] = [each["local"] for each in found["addr_info"] if each["scope"] == "link"]
    before = containers(deployed)
    edit(deployed, lambda config: config["nodes"][1]["ssh"].update({"host": f"{local}%{FIRST}"}))
    assert replaced(deployed.must("up")) == []
    assert containers(deployed) == before
    unchanged(deployed)
