"""The network: what its scripts do to a node, and the rows of the table that begin with it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from components.network import link_inputs, network_inputs
from components.remote import compose
from components.settings import Settings, parse
from lab.build import build_image
from lab.deployment import Deployment
from lab.files import SYSFS_ROOT
from lab.instance import Lab
from lab.machine import require_machine
from lab.nodes import node_image
from lab.record import default_name
from lab.shell import LabError
from tests import samples
from tests.deployment.stack import Config, containers, edit, replaced, unchanged
from tests.deployment.test_restarts import ALL_OF_RAY, WORKER_AND_VLLM

pytestmark = pytest.mark.lab

TWIN = "enP2p1s0f0np0"
OWN = "/etc/netplan/90-spark-vllm-test.yaml"
FOREIGN = "/etc/netplan/40-cx7.yaml"
ASIDE = f"{FOREIGN}.kept-by-spark-vllm-test"
Change = Callable[[samples.Config], None]
Ended = subprocess.CompletedProcess[str]


class Worker:
    """A node, and the scripts of the network on it, as the plugin sends them."""

    def __init__(self, lab: Lab, name: str = "worker") -> None:
        self.lab = lab
        self.name = name

    def root(self, command: str, *, stdin: bytes | None = None) -> str:
        return self.lab.root(self.name, "bash", "-c", command, stdin=stdin)

    def network(self, verb: str, change: Change | None = None, *, via: str = "", deadman: int = 60) -> Ended:
        settings = _settings(change)
        node = next(each for each in settings.nodes if each.name == self.name)
        inputs = network_inputs(settings, node, project="spark-vllm", stack="test")
        inputs["ROOT"] = re.sub(r"(?m)^(DEADMAN)=\d+$", rf"\1={deadman}", inputs["ROOT"])
        inputs["ROOT"] = re.sub(r"(?m)^(DELAY)=\d+$", r"\1=1", inputs["ROOT"])
        return self.ssh(verb, compose("network.sh", {**inputs, "HEARD_SECONDS": "4"}), via)

    def link(self, change: Change | None = None) -> Ended:
        settings = _settings(change)
        node = next(each for each in settings.nodes if each.name == self.name)
        return self.ssh("", compose("link.sh", link_inputs(settings, node)))

    def ssh(self, verb: str, script: str, via: str = "") -> Ended:
        config = self.lab.status()["sshConfig"]
        way = [f"-oHostName={via.replace('%', '%%')}", f"-oProxyCommand=ssh -F {config} -W [%h]:%p head"]
        argv = ["ssh", "-F", config, *(way if via else []), self.name, "--", f"timeout 100 bash -s -- {verb}"]
        return subprocess.run(argv, input=script, capture_output=True, text=True, timeout=150, check=False)

    def addresses(self) -> list[str]:
        return self.root("ip -4 -o addr | awk '$2 ~ /^en/ {print $4}'").split()

    def link_local(self, interface: str) -> str:
        return self.root(f"ip -6 -o addr show dev {interface} scope link | awk '{{print $4}}'").split("/")[0]

    def mtu(self) -> str:
        return self.root(f"cat /sys/class/net/{TWIN}/mtu").strip()

    def netplan(self, text: str) -> None:
        self.root(f"install -m 600 /dev/stdin {FOREIGN} && netplan apply", stdin=text.encode())

    def files(self) -> str:
        return self.root("cd /etc/netplan && sha256sum * && stat -c %y *")


def _settings(change: Change | None) -> Settings:
    configuration = samples.config(network={"sysfs": SYSFS_ROOT})
    if change:
        change(configuration)
    return parse(samples.raw(configuration))


def twin(address: str, **network: object) -> Change:
    """The address of the worker's second rail, and keys of the network."""

    def change(configuration: samples.Config) -> None:
        configuration["nodes"][1]["rails"][1]["address"] = address
        configuration["network"].update(network)

    return change


def first(address: str, **network: object) -> Change:
    """The address of the worker's first rail, by which its SSH comes in."""

    def change(configuration: samples.Config) -> None:
        configuration["nodes"][1]["rails"][0]["address"] = address
        configuration["network"].update(network)

    return change


MOVED = "192.168.201.99/24"
MOVE = twin(MOVED, takeOver=True)


@pytest.fixture(scope="module")
def bare() -> Iterator[Lab]:
    """Two nodes of these tests' own, whose network they take apart."""
    try:
        require_machine()
    except LabError as error:
        pytest.skip(f"no lab on this machine: {error}")
    instance = Lab(f"{default_name()}-network")
    instance.down()
    instance.up()
    yield instance
    instance.down()


@pytest.fixture
def worker(bare: Lab) -> Iterator[Worker]:
    """A worker whose network is as delivered, before and after."""
    node = Worker(bare)
    delivered = node.root(f"cat {FOREIGN}")
    yield node
    node.root("systemctl stop 'spark-vllm-network-*' 2>/dev/null; rm -rf /var/lib/spark-vllm")
    node.root("cd /etc/netplan && rm -f *spark-vllm* 50-*; ip -4 addr flush dev enP2p1s0f0np0")
    node.netplan(delivered)
    bare.wait_ready("worker")


def done(ended: Ended, *words: str) -> None:
    assert ended.returncode == 0, ended.stderr
    for word in words:
        assert word in ended.stdout + ended.stderr


def refused(ended: Ended, *words: str) -> None:
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for word in words:
        assert word in ended.stderr


def test_what_is_right_is_left_alone_and_needs_no_sudo(worker: Worker) -> None:
    before = worker.files()
    worker.root("mv /etc/sudoers.d/aurora /root/")
    try:
        ended = worker.network("apply")
        done(ended, "changed=none")
        assert ended.stderr == ""
        done(worker.network("confirm"), "confirmed=yes")
        worker.root(f"ip addr del 192.168.201.13/24 dev {TWIN}")
        line = "aurora ALL=(root) NOPASSWD: /usr/bin/bash"
        refused(worker.network("apply"), "sudo asks aurora for a password", line, "/etc/sudoers.d/spark-vllm")
        worker.root(f"echo '{line}' >/etc/sudoers.d/spark-vllm")
        done(worker.network("apply"), f"changed={TWIN}")
    finally:
        worker.root("rm -f /etc/sudoers.d/spark-vllm; mv /root/aurora /etc/sudoers.d/")
    assert worker.files() == before


def test_an_address_that_a_reboot_loses_is_warned_of(worker: Worker) -> None:
    worker.root(f"ip addr add {MOVED} dev {TWIN}")
    ended = worker.network("apply", twin(MOVED))
    done(ended, "changed=none", f"warning: worker: {TWIN} has {MOVED}, but no configuration")


def test_a_foreign_file_is_refused_then_taken_over_and_restored(worker: Worker) -> None:
    before = worker.files()
    refused(
        worker.network("apply", twin(MOVED)), FOREIGN, f"{TWIN} {MOVED}", "network.takeOver: true", "40-cx7"
    )
    assert worker.files() == before
    done(worker.network("apply", MOVE), f"changed={TWIN}")
    done(worker.network("confirm", MOVE))
    assert "project spark-vllm, stack test" in worker.root(f"cat {OWN}; test -e {ASIDE}; ! test -e {FOREIGN}")
    assert worker.root(f"stat -c %a {OWN}").strip() == "600"
    kept = worker.files()
    done(worker.network("apply", MOVE), "changed=none")
    done(worker.network("remove", MOVE), "removed=none")
    assert worker.files() == kept
    worker.lab.outer.docker("stop", "--time=30", worker.lab.container("worker"))
    worker.lab.nodes.start([worker.lab.node("worker")])
    eventually(lambda: worker.addresses() == ["192.168.200.13/24", MOVED])
    eventually(lambda: worker.network("apply", MOVE).returncode == 0)
    done(worker.network("remove", twin(MOVED, removeOnDestroy=True)), "removed=yes")
    eventually(lambda: worker.addresses() == ["192.168.200.13/24", "192.168.201.13/24"])
    eventually(lambda: worker.files() == before)
    assert (
        "spark-vllm" not in worker.root("ls -R /var/lib/spark-vllm; systemctl list-units 'spark-vllm*'")[20:]
    )


def eventually(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.3)


def test_a_file_that_also_configures_something_else_stays(worker: Worker) -> None:
    for text in (
        f"network: {{ethernets: {{{TWIN}: {{addresses: [192.168.201.77/24]}}, wlP9s9: {{dhcp4: no}}}}}}",
        'network: {ethernets: {all: {match: {name: "en*"}, dhcp4: false}}}',
        f"network: {{ethernets: {{{TWIN}: {{}}}}, vlans: {{v7: {{id: 7, link: {TWIN}}}}}}}",
    ):
        worker.root("install -m 600 /dev/stdin /etc/netplan/50-other.yaml", stdin=text.encode())
        refused(worker.network("apply", MOVE), "50-other.yaml", "cannot be taken over whole")
    assert worker.root(f"ls {FOREIGN}")


def test_what_netplan_refuses_changes_nothing(worker: Worker) -> None:
    worker.root("echo 'network: {bonds: {b: {interfaces: [nowhere]}}}' >/etc/netplan/50-broken.yaml")
    before = worker.files()
    refused(worker.network("apply", MOVE), "netplan refuses the change, and nothing was changed")
    assert worker.files() == before


def test_nobody_confirms_so_it_is_undone_and_the_next_run_repairs(worker: Worker) -> None:
    before = worker.files()
    change = twin(MOVED, takeOver=True, mtu=1500)
    done(worker.network("apply", change, deadman=4))
    assert MOVED in worker.addresses()
    eventually(lambda: worker.files() == before)
    eventually(lambda: "192.168.201.13/24" in worker.addresses() and worker.mtu() == "9000")
    assert MOVED not in worker.addresses()
    eventually(lambda: "rolled-back" in worker.root("ls /var/lib/spark-vllm/network-test"))
    done(worker.network("confirm", change), "was undone, since nothing confirmed it", "confirmed=yes")
    assert MOVED in worker.addresses()
    assert worker.mtu() == "1500"
    assert "rollback" not in worker.root("systemctl list-timers --all 'spark-vllm*'")


def test_a_change_that_cuts_the_way_is_undone_and_told_over_it(worker: Worker) -> None:
    before = worker.files()
    # The first apply cuts the way, the second one, that of the undoing, lets it come back.
    rule = "OUTPUT -d 192.168.200.12 -j DROP"
    cut = f"iptables -D {rule} 2>/dev/null || iptables -I {rule}"
    fake = f'#!/bin/sh\n/usr/sbin/netplan "$@"\n[ $1 != apply ] || {cut}\n'
    worker.root("install /dev/stdin /usr/local/sbin/netplan", stdin=fake.encode())
    try:
        refused(worker.network("apply", MOVE), "cut the way", "so it was undone", "%enp1s0f0np0")
    finally:
        worker.root("rm /usr/local/sbin/netplan")
    assert worker.addresses() == ["192.168.200.13/24", "192.168.201.13/24"]
    assert worker.files() == before


def test_the_rail_that_carries_ssh_is_changed_by_another_way_alone(worker: Worker) -> None:
    change = first("192.168.200.99/24", takeOver=True)
    local = f"{worker.link_local('enp1s0f0np0')}%enp1s0f0np0"
    refused(worker.network("apply", change), "SSH comes in by 192.168.200.13", local, "192.168.201.13")
    done(worker.network("apply", change, via=local), "changed=enp1s0f0np0")
    done(worker.network("confirm", change, via=local))
    assert worker.addresses()[0] == "192.168.200.99/24"
    done(worker.network("apply", first("192.168.200.13/24"), via=local))
    done(worker.network("confirm", first("192.168.200.13/24")))


def test_the_head_does_not_cut_its_workers_off(worker: Worker) -> None:
    head = Worker(worker.lab, "head")

    def renumber(configuration: samples.Config) -> None:
        for node in configuration["nodes"]:
            node["rails"][0]["address"] = node["rails"][0]["address"].replace("192.168.200", "192.168.210")

    refused(
        head.network("apply", renumber), "a worker is reached by 192.168.200.13 over enp1s0f0np0", "fe80::"
    )


def wrong_device(configuration: samples.Config) -> None:
    configuration["nodes"][1]["rails"][0]["rdmaDevice"] = "roceP2p1s0f0"


def no_device(configuration: samples.Config) -> None:
    configuration["nodes"][1]["rails"][0]["rdmaDevice"] = "rocep9"


@pytest.mark.parametrize(
    ("before", "after", "change", "words"),
    [
        pytest.param(
            "", "", wrong_device, f"roceP2p1s0f0 belongs to {TWIN}, not to enp1s0f0np0", id="mapping"
        ),
        pytest.param(
            "", "", no_device, "no RDMA device rocep9; it has: roceP2p1s0f0 rocep1s0f0", id="device"
        ),
        pytest.param(
            f"ip link set {TWIN} mtu 1500", f"ip link set {TWIN} mtu 9000", None, "has MTU 1500", id="own MTU"
        ),
        pytest.param(
            "ip route add 192.168.201.128/25 dev enp1s0f0np0",
            "ip route del 192.168.201.128/25 dev enp1s0f0np0",
            None,
            "there is a second route to it: 192.168.201.128/25 dev enp1s0f0np0",
            id="second route",
        ),
        pytest.param("", "", twin(MOVED), f"{TWIN} does not have {MOVED}", id="address"),
    ],
)
def test_a_link_check_says_what_is_wrong(
    worker: Worker, before: str, after: str, change: Change | None, words: str
) -> None:
    worker.root(before or "true")
    try:
        refused(worker.link(change), words)
    finally:
        worker.root(after or "true")


def test_a_link_check_sees_the_other_end(worker: Worker) -> None:
    done(worker.link(), "rails=ok")
    head = Worker(worker.lab, "head")
    head.root(f"ip neigh change 192.168.201.13 dev {TWIN} nud stale || true")
    done(head.link(), "rails=ok")
    head.root(f"ip link set {TWIN} mtu 1500")
    refused(worker.link(), "192.168.201.12 answers on enP2p1s0f0np0, but not to frames of 9000 bytes")
    head.root(f"ip link set {TWIN} mtu 9000")
    worker.lab.unplug("head", 1)
    refused(worker.link(), "192.168.201.12 does not answer on enP2p1s0f0np0")
    refused(head.link(), "enP2p1s0f0np0 is", "is the cable in, on both ends?")
    worker.lab.plug("head", 1)
    worker.lab.unplug("worker", 1)
    worker.root(f"ip addr del 192.168.201.13/24 dev {TWIN} 2>/dev/null || true")
    refused(worker.network("apply"), f"{TWIN} has no carrier")
    worker.lab.plug("worker", 1)


def test_networkmanager_keeps_what_it_manages(worker: Worker, bare: Lab) -> None:
    """As DGX OS delivers it: the port on a generic DHCP profile, its only address a link-local one."""
    image = build_image(
        bare.outer,
        Path(__file__).with_name("networkmanager"),
        "spark-lab/networkmanager",
        base=node_image(bare.outer),
    )
    packages = bare.outer.attempt(
        "run", "--rm", "--network=none", "--entrypoint=tar", image, "-c", "-C", "/packages", "."
    )
    worker.root("mkdir /opt/packages && tar -x -C /opt/packages", stdin=packages.stdout)
    worker.root(
        "cd /etc/systemd/system && mkdir NetworkManager.service.d && "
        "cp systemd-networkd.service.d/lab.conf NetworkManager.service.d/ && dpkg -i /opt/packages/*.deb"
    )
    worker.netplan("network: {ethernets: {enp1s0f0np0: {addresses: [192.168.200.13/24], mtu: 9000}}}")
    worker.root(f"ip addr flush dev {TWIN}; ip link set {TWIN} mtu 1500; systemctl restart NetworkManager")
    generic = f'nmcli -w 0 connection up "Wired connection $i" ifname {TWIN}'
    worker.root(f"nmcli device set {TWIN} managed yes; for i in 1 2 3; do {generic} && break; done")
    eventually(lambda: "connecting" in worker.root("nmcli device"))
    eventually(lambda: bool(worker.link_local(TWIN)))
    local = f"{worker.link_local(TWIN)}%{TWIN}"
    done(worker.network("apply", via=local), f"changed={TWIN}")
    done(worker.network("confirm", via=local), "confirmed=yes")
    assert "renderer: NetworkManager" in worker.root(f"cat {OWN}")
    assert re.search(rf"{TWIN} +ethernet +connected +netplan-{TWIN}", worker.root("nmcli device"))
    assert "192.168.201.13/24" in worker.addresses()
    assert worker.mtu() == "9000"
    ended = worker.network("apply")
    done(ended, "changed=none")
    assert ended.stderr == ""
    worker.root("dpkg --purge network-manager; rm -rf /etc/NetworkManager /run/NetworkManager")


def a_rail_of_the_worker(config: Config) -> None:
    config["network"]["takeOver"] = True
    config["nodes"][1]["rails"][1]["address"] = MOVED


def the_mtu(config: Config) -> None:
    config["network"]["mtu"] = 8900


def test_rows_of_the_table_that_begin_with_the_network(pair: Deployment) -> None:
    right = pair.config_file.read_text()
    pair.must("up", "--refresh")
    before = containers(pair)
    edit(pair, a_rail_of_the_worker)
    run = pair.must("up")
    assert replaced(run) == WORKER_AND_VLLM
    order = [event.name for event in run.events]
    assert order.index("network-worker") < order.index("network-confirm-worker") < order.index("link-head")
    after = containers(pair)
    assert after["ray-head"] == before["ray-head"]
    assert MOVED in Worker(pair.lab).addresses()
    unchanged(pair)

    edit(pair, the_mtu)
    run = pair.must("up")
    assert replaced(run) == ALL_OF_RAY
    order = [event.name for event in run.events]
    assert order.index("network-confirm-head") < order.index("network-worker")
    assert not {"image-worker", "model-worker"} & {e.name for e in run.events if e.op == "replace"}
    assert Worker(pair.lab).mtu() == Worker(pair.lab, "head").mtu() == "8900"
    unchanged(pair)

    # destroy acts by what stands in the state, so the switch is set by an `up`, which changes no container
    edit(pair, lambda config: config["network"].update(removeOnDestroy=True))
    assert replaced(pair.must("up")) == []
    run = pair.must("destroy")
    commands = [event.name for event in run.events if event.type == "command:remote:Command"]
    assert commands.index("network-worker") < commands.index("network-head")
    gone = [event.name for event in run.events if event.type.startswith("docker:")]
    order = [event.name for event in run.events]
    assert all(order.index(name) < order.index("network-worker") for name in gone if "worker" in name)
    for name in ("worker", "head"):
        node = Worker(pair.lab, name)
        eventually(lambda node=node: node.root("ls /etc/netplan").split() == ["10-lab.yaml", "40-cx7.yaml"])  # type: ignore[misc]
        pair.lab.wait_ready(name)
    pair.config_file.write_text(right)
