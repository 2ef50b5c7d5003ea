"""The network's scripts on nodes of their own: what they leave alone, refuse, change, and undo."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lab.build import build_image
from lab.deployment import ROOT
from lab.files import SYSFS_ROOT
from lab.instance import Lab
from lab.nodes import node_image
from tests import samples
from tests.deployment.rails import (
    DRAFTS,
    FIRST,
    FOREIGN,
    KEPT,
    OWN,
    STATE,
    TWIN,
    UNIT,
    Change,
    Rails,
    done,
    eventually,
    refused,
    worker_rail,
)
from tests.instances import fresh

pytestmark = pytest.mark.lab

DELIVERED = ["192.168.200.13/24", "192.168.201.13/24"]
MOVED = "192.168.201.99/24"
MOVE = worker_rail(1, MOVED, takeOver=True)
OTHER = "/etc/netplan/50-other.yaml"
PUT_BACK = f"""
systemctl stop '{UNIT}-*.timer' 2>/dev/null
rm -rf {OWN} {STATE} {DRAFTS} {KEPT} {OTHER}*
ip -4 addr flush dev {TWIN}
netplan apply
"""


@pytest.fixture(scope="module")
def bare() -> Iterator[Lab]:
    """Two nodes whose network these tests take apart."""
    yield from fresh("network")


@pytest.fixture
def worker(bare: Lab) -> Iterator[Rails]:
    """A worker whose network is as delivered, before and after."""
    node = Rails(bare)
    text, before = node.root(f"cat {FOREIGN}"), node.files()
    yield node
    if node.files() != before or node.root(f"ls {STATE} 2>/dev/null || true"):
        node.put(f"{text}\n")
        node.root(PUT_BACK)
    eventually(lambda: node.addresses() == DELIVERED)
    bare.wait_ready("worker")


@pytest.fixture
def head(bare: Lab) -> Rails:
    return Rails(bare, "head")


def test_what_is_right_is_left_alone_and_needs_no_sudo(worker: Rails) -> None:
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
        done(worker.network("confirm"), "confirmed=yes")
    finally:
        worker.root("rm -f /etc/sudoers.d/spark-vllm; mv /root/aurora /etc/sudoers.d/")
    assert worker.files() == before


def test_an_unmanaged_network_is_checked_and_never_changed(worker: Rails) -> None:
    before = worker.files()
    change = worker_rail(1, "192.168.201.99/24", manage=False)
    done(worker.network("apply", change), "changed=none")
    done(worker.network("remove", change), "removed=none")
    assert (worker.files(), worker.addresses()) == (before, DELIVERED)
    refused(worker.link(change), f"{TWIN} does not have 192.168.201.99/24")


@pytest.mark.report("F1")
def test_an_address_that_a_reboot_loses_is_warned_of(worker: Rails) -> None:
    worker.root(f"ip addr add {MOVED} dev {TWIN}")
    ended = worker.network("apply", worker_rail(1, MOVED))
    worker.root(f"ip addr del {MOVED} dev {TWIN}")
    done(ended, "changed=none", f"warning: worker: {TWIN} has {MOVED}, but no configuration")


def test_a_foreign_file_is_refused_then_taken_over_and_restored(worker: Rails) -> None:
    worker.put(worker.root(f"cat {FOREIGN}").replace("version: 2", "version: 2\n  renderer: networkd") + "\n")
    before = worker.files()
    refused(
        worker.network("apply", worker_rail(1, MOVED)),
        f"{FOREIGN} already configures",
        f"{TWIN} {MOVED}",
        "network.takeOver: true",
    )
    assert worker.files() == before
    done(worker.network("apply", MOVE), f"changed={TWIN}")
    assert worker.files() == before
    done(worker.network("confirm", MOVE), "worker: confirmed")
    assert worker.addresses() == ["192.168.200.13/24", MOVED]
    assert worker.root("ls /etc/netplan").split() == [
        "10-lab.yaml",
        KEPT.rpartition("/")[2],
        "90-spark-vllm-test.yaml",
    ]
    own = worker.root(f"cat {OWN}")
    assert own.startswith("# Made by Pulumi: project spark-vllm, stack test.")
    # What the other file said for all interfaces does not go with it.
    assert "\n  renderer: networkd\n" in own
    assert worker.root(f"stat -c '%a %U' {OWN}") == "600 root"

    kept = worker.files()
    done(worker.network("apply", MOVE), "changed=none")
    done(worker.network("remove", MOVE), "removed=none")
    assert worker.files() == kept
    worker.reboot()
    eventually(lambda: worker.addresses() == ["192.168.200.13/24", MOVED])
    eventually(lambda: worker.network("apply", MOVE).returncode == 0)

    done(worker.network("remove", worker_rail(1, MOVED, removeOnDestroy=True)), "removed=yes")
    # An `up` right after it waits until the removal, some seconds later, is done.
    done(worker.network("apply"), "changed=none")
    assert worker.addresses() == DELIVERED
    assert worker.files() == before
    assert worker.root(f"ls {STATE} 2>/dev/null; systemctl list-units --all --no-legend '{UNIT}*'") == ""


def test_a_rail_that_no_file_names_is_set_and_others_files_stay(worker: Rails) -> None:
    worker.put(worker.root(f"cat {FOREIGN}").partition(f"    {TWIN}:")[0])
    worker.root(f"ip -4 addr flush dev {TWIN}; ip link set {TWIN} mtu 1500")
    first = worker.root(f"cat {FOREIGN}")
    done(worker.network("apply"), f"changed={TWIN}")
    done(worker.network("confirm"), "confirmed=yes")
    assert (worker.addresses(), worker.mtu()) == (DELIVERED, 9000)
    assert worker.root(f"cat {FOREIGN}") == first
    assert FIRST not in worker.root(f"cat {OWN}")
    assert worker.link_local(TWIN)
    done(worker.network("apply"), "changed=none")


def test_a_file_that_also_configures_something_else_stays(worker: Rails) -> None:
    before = worker.files()
    for text in (
        f"{{ethernets: {{{TWIN}: {{addresses: [192.168.201.77/24]}}, wlP9s9: {{dhcp4: no}}}}}}",
        '{ethernets: {all: {match: {name: "en*"}, dhcp4: false}}}',
        f"{{ethernets: {{{TWIN}: {{}}}}, vlans: {{v7: {{id: 7, link: {TWIN}}}}}}}",
    ):
        worker.put(f"network: {text}\n", OTHER)
        refused(worker.network("apply", MOVE), OTHER, "cannot be taken over whole")
    worker.root(f"rm {OTHER}")
    assert worker.files() == before


def test_a_file_that_knows_the_rail_by_its_mac_address_is_found(worker: Rails) -> None:
    mac = worker.root(f"cat /sys/class/net/{TWIN}/address")
    worker.put(worker.root(f"cat {FOREIGN}").partition(f"    {TWIN}:")[0])
    worker.put(f"network: {{ethernets: {{port: {{match: {{macaddress: '{mac}'}}, mtu: 9000}}}}}}\n", OTHER)
    refused(worker.network("apply", worker_rail(1, MOVED)), f"{OTHER} already configures {TWIN}")


def test_what_netplan_refuses_changes_nothing(worker: Rails) -> None:
    worker.put("network: {bonds: {b: {interfaces: [nowhere]}}}\n", OTHER)
    before = worker.files()
    refused(worker.network("apply", MOVE), "netplan refuses the change, and nothing was changed")
    assert worker.files() == before


@pytest.fixture
def netplan(worker: Rails) -> Iterator[Rails]:
    """A netplan on the worker that can be told to go wrong: the first `apply` does what /run/first says."""
    text = """#!/bin/bash
if [[ $1 == apply && -e /run/first ]]; then
  mv /run/first /run/second
  source /run/second
elif [[ $1 == apply && -e /run/second ]]; then
  iptables -D OUTPUT -d 192.168.200.12 -j DROP 2>/dev/null
fi
exec /usr/sbin/netplan "$@"
"""
    worker.root("install -m 755 /dev/stdin /usr/local/sbin/netplan", stdin=text.encode())
    yield worker
    worker.root("rm -f /usr/local/sbin/netplan /run/first /run/second")
    worker.root("iptables -D OUTPUT -d 192.168.200.12 -j DROP 2>/dev/null || true")


def test_a_change_that_cuts_the_way_is_undone_and_told_over_it(netplan: Rails) -> None:
    before = netplan.files()
    netplan.root("echo 'iptables -I OUTPUT -d 192.168.200.12 -j DROP' >/run/first")
    refused(
        netplan.network("apply", MOVE), "cut the way", "so it was undone", f"be {netplan.link_local(TWIN)}"
    )
    assert netplan.addresses() == DELIVERED
    assert netplan.files() == before


def test_a_change_that_netplan_cannot_apply_is_undone(netplan: Rails) -> None:
    before = netplan.files()
    # One that stands in no file comes back too.
    netplan.root(
        f"ip addr add 192.168.201.77/24 dev {TWIN}; echo 'ip addr flush dev {TWIN}; exit 1' >/run/first"
    )
    refused(netplan.network("apply", MOVE), "netplan apply failed, and what was there before is put back")
    assert set(netplan.addresses()) == {*DELIVERED, "192.168.201.77/24"}
    assert netplan.files() == before
    netplan.root(f"ip addr flush dev {TWIN}; netplan apply")


def test_nobody_confirms_so_it_is_undone_and_the_next_run_repairs(worker: Rails) -> None:
    before = worker.files()
    change = worker_rail(1, MOVED, takeOver=True, mtu=1500)
    done(worker.network("apply", change, deadman=4))
    assert (worker.addresses()[1], worker.mtu(), worker.mtu(FIRST)) == (MOVED, 1500, 1500)
    eventually(lambda: "rolled-back" in worker.root(f"ls {STATE}"))
    assert worker.files() == before
    assert (worker.addresses(), worker.mtu(), worker.mtu(FIRST)) == (DELIVERED, 9000, 9000)
    done(worker.network("confirm", change), "was undone, since nothing had confirmed it", "confirmed=yes")
    assert (worker.addresses()[1], worker.mtu()) == (MOVED, 1500)
    assert worker.root(f"systemctl list-timers --all --no-legend '{UNIT}*'; ls {DRAFTS}") == ""


def test_a_boot_forgets_what_nobody_has_confirmed(worker: Rails) -> None:
    """The timer that would undo it does not outlive the boot either."""
    before = worker.files()
    done(worker.network("apply", MOVE), f"changed={TWIN}")
    assert worker.addresses() == ["192.168.200.13/24", MOVED]
    worker.reboot()
    worker.lab.wait_ready("worker")
    assert worker.addresses() == DELIVERED
    assert worker.files() == before
    done(worker.network("confirm", MOVE), "was undone, since nothing had confirmed it", "confirmed=yes")
    assert worker.addresses() == ["192.168.200.13/24", MOVED]


def test_a_file_that_is_made_anew_at_each_boot_is_refused(worker: Rails) -> None:
    made = f"{DRAFTS}/60-made.yaml"
    worker.root(f"install -d {DRAFTS}")
    worker.put(f"network: {{ethernets: {{{TWIN}: {{mtu: 9000}}}}}}\n", made)
    refused(worker.network("apply", MOVE), f"{made} configures {TWIN} and is made anew at each boot")
    worker.root(f"rm {made}")


def test_the_rail_that_carries_ssh_is_changed_by_another_way_alone(worker: Rails) -> None:
    before, local = worker.files(), worker.link_local()
    change = worker_rail(0, "192.168.200.99/24", takeOver=True)
    refused(
        worker.network("apply", change),
        f"SSH comes in by 192.168.200.13 on {FIRST}",
        f"be {local} or 192.168.201.13,",
    )
    assert worker.files() == before
    done(worker.network("apply", change, via=local), f"changed={FIRST}")
    done(worker.network("confirm", change, via=local))
    assert worker.addresses() == ["192.168.200.99/24", DELIVERED[1]]
    done(worker.network("apply", via="192.168.201.13"), f"changed={FIRST}")
    done(worker.network("confirm"))
    assert worker.addresses() == DELIVERED


def renumbered(configuration: samples.Config) -> None:
    for node in configuration["nodes"]:
        node["rails"][0]["address"] = node["rails"][0]["address"].replace("192.168.200", "192.168.210")


def test_the_head_does_not_cut_its_workers_off(head: Rails) -> None:
    before = head.files()
    refused(
        head.network("apply", renumbered), f"a worker is reached by 192.168.200.13 over {FIRST}", "fe80::"
    )
    assert head.files() == before


def wrong_device(configuration: samples.Config) -> None:
    configuration["nodes"][1]["rails"][0]["rdmaDevice"] = "roceP2p1s0f0"


def no_device(configuration: samples.Config) -> None:
    configuration["nodes"][1]["rails"][0]["rdmaDevice"] = "rocep9"


def wrong_gid_index(configuration: samples.Config) -> None:
    configuration["nodes"][1]["gidIndex"] = 5


STATE_FILE = "/opt/spark-lab/sysfs/class/infiniband/rocep1s0f0/ports/1/state"


@pytest.mark.parametrize(
    ("before", "after", "change", "words"),
    [
        pytest.param("", "", wrong_device, f"roceP2p1s0f0 belongs to {TWIN}, not to {FIRST}", id="mapping"),
        pytest.param(
            "", "", no_device, "no RDMA device rocep9; it has: roceP2p1s0f0 rocep1s0f0", id="device"
        ),
        pytest.param(
            f"echo '1: DOWN' >{STATE_FILE}",
            f"echo '4: ACTIVE' >{STATE_FILE}",
            None,
            "RDMA device rocep1s0f0 is 1: DOWN, not ACTIVE",
            id="RDMA state",
        ),
        pytest.param(
            f"ip link set {TWIN} mtu 1500",
            f"ip link set {TWIN} mtu 9000",
            None,
            f"{TWIN} has MTU 1500, and network.mtu is 9000",
            id="own MTU",
        ),
        pytest.param(
            f"ip route add 192.168.201.128/25 dev {FIRST}",
            f"ip route del 192.168.201.128/25 dev {FIRST}",
            None,
            f"there is a second route to it: 192.168.201.128/25 dev {FIRST}",
            id="second route",
        ),
        pytest.param(
            "",
            "",
            worker_rail(1, MOVED),
            f"{TWIN} does not have {MOVED}",
            id="address",
            marks=pytest.mark.report("N5"),
        ),
        pytest.param(
            "",
            "",
            wrong_gid_index,
            "gidIndex 5 is not the RoCE v2 entry of 192.168.200.13 in the GID table of rocep1s0f0 (that is 3",
            id="GID index",
            marks=pytest.mark.report("F4"),
        ),
    ],
)
def test_a_link_check_says_what_is_wrong(
    worker: Rails, before: str, after: str, change: Change | None, words: str
) -> None:
    worker.root(before or "true")
    try:
        refused(worker.link(change), words)
    finally:
        worker.root(after or "true")


@pytest.mark.report("F4", "F8")
@pytest.mark.parametrize("state", ["stale", "absent"])
def test_a_link_that_is_right_passes_whatever_the_neighbour_table_says(worker: Rails, state: str) -> None:
    worker.root(f"ping -c 1 192.168.200.12 && ip neigh flush all nud permanent; ip neigh flush dev {FIRST}")
    if state == "stale":
        worker.root(f"ping -c 1 192.168.200.12; ip neigh change 192.168.200.12 dev {FIRST} nud stale")
    done(worker.link(lambda config: config["nodes"][1].update(gidIndex=3)), "rails=ok")


def test_a_link_check_sees_the_other_ends_mtu(worker: Rails, head: Rails) -> None:
    done(head.link(), "rails=ok")
    head.root(f"ip link set {TWIN} mtu 1500")
    try:
        refused(worker.link(), f"192.168.201.12 answers on {TWIN}, but not to frames of 9000 bytes")
    finally:
        head.root(f"ip link set {TWIN} mtu 9000")


def test_a_pulled_cable_is_seen_on_both_ends_and_no_reason_to_change(worker: Rails, head: Rails) -> None:
    worker.lab.unplug("worker", 1)
    try:
        worker.root(f"ip addr del 192.168.201.13/24 dev {TWIN} 2>/dev/null || true")
        eventually(lambda: worker.root(f"cat /sys/class/net/{TWIN}/operstate") != "up")
        refused(worker.link(), f"worker: {TWIN} is ", "is the cable in, on both ends?")
        refused(head.link(), f"192.168.201.13 does not answer on {TWIN} (192.168.201.12): is the cable in")
        refused(worker.network("apply"), f"worker: {TWIN} has no carrier: is the cable in")
    finally:
        worker.lab.plug("worker", 1)


def test_first_contact_with_a_worker_that_has_no_address(worker: Rails, head: Rails, tmp_path: Path) -> None:
    """The recipe of docs/network.md: its link-local address, discover, and what up then does."""
    worker.root(f"mv {FOREIGN} /root/40-cx7.yaml; netplan apply")
    worker.root(
        f"for rail in {FIRST} {TWIN}; do ip -4 addr flush dev $rail; ip link set $rail mtu 1500 up; done"
    )
    try:
        answers = worker.lab.ssh("head", "ping", "-c", "3", f"ff02::1%{FIRST}")
        [local] = {found for found in re.findall(r"from (fe80\S+):", answers) if found != head.link_local()}
        own = discovered(worker.lab, tmp_path, local)
        rails = [(rail["interface"], rail["address"]) for rail in own["nodes"][1]["rails"]]
        assert rails == list(zip((FIRST, TWIN), DELIVERED, strict=True))
        assert own["nodes"][1]["ssh"]["host"] == local
        done(worker.network("apply", lambda config: config.update(own), via=local), f"changed={FIRST} {TWIN}")
        done(worker.network("confirm", lambda config: config.update(own), via=local), "confirmed=yes")
        assert worker.addresses() == DELIVERED
        assert (
            discovered(worker.lab, tmp_path, "192.168.200.13")["nodes"][1]["rails"]
            == own["nodes"][1]["rails"]
        )
        done(worker.link(), "rails=ok")
    finally:
        worker.root(f"mv /root/40-cx7.yaml {FOREIGN}")


def discovered(lab: Lab, folder: Path, worker: str) -> samples.Config:
    """What discover writes into a stack file, by its keys."""
    file = folder / "Pulumi.first.yaml"
    if not file.exists():
        file.write_text("config:\n  spark-vllm:apiKey: there\n  spark-vllm:rayToken: there\n")
    way = lab.status()["nodes"]["head"]
    argv: list[str | Path] = [
        ROOT / "bin/spark-vllm",
        "discover",
        "--yes",
        "--config-file",
        file,
        "--sysfs",
        SYSFS_ROOT,
    ]
    argv += ["--head", f"aurora@{way['host']}:{way['port']}", "--worker", f"aurora@{worker}"]
    subprocess.run(argv, env={**os.environ, **lab.environment()}, check=True, timeout=60)
    document = YAML(typ="safe").load(file)["config"]
    return {key: document[f"spark-vllm:{key}"] for key in ("nodes", "network")}


@pytest.fixture(scope="module")
def networkmanager(bare: Lab) -> Iterator[Rails]:
    """NetworkManager on the worker, with the second rail to manage and no file of netplan that names it."""
    node = Rails(bare)
    text = node.root(f"cat {FOREIGN}")
    context = Path(__file__).with_name("networkmanager")
    image = build_image(bare.outer, context, "spark-lab/networkmanager", base=node_image(bare.outer))
    tar = ("--entrypoint=tar", image, "-c", "-C", "/packages", ".")
    packages = bare.outer.attempt("run", "--rm", "--network=none", *tar)
    node.root("mkdir /opt/packages && tar -x -C /opt/packages", stdin=packages.stdout)
    node.root(
        "cd /etc/systemd/system && mkdir NetworkManager.service.d && "
        "cp systemd-networkd.service.d/lab.conf NetworkManager.service.d/ && dpkg -i /opt/packages/*.deb"
    )
    node.put(text.partition(f"    {TWIN}:")[0])
    node.root(f"netplan apply; ip addr flush dev {TWIN}; ip link set {TWIN} mtu 1500")
    node.root(f"systemctl restart NetworkManager; nmcli device set {TWIN} managed yes")
    yield node
    node.root("systemctl disable --now NetworkManager")
    node.put(f"{text}\n")
    node.root(PUT_BACK)
    bare.wait_ready("worker")


def test_networkmanager_keeps_what_it_manages(networkmanager: Rails) -> None:
    """As DGX OS delivers it: the port on a generic DHCP profile, its only address a link-local one."""
    node = networkmanager
    generic = f'nmcli -w 0 connection up "Wired connection $i" ifname {TWIN}'
    node.root(f"for i in 1 2 3; do {generic} && break; done")
    eventually(lambda: "connecting" in node.root("nmcli device"))
    eventually(lambda: bool(node.link_local(TWIN)))
    local = node.link_local(TWIN)
    done(node.network("apply", via=local), f"changed={TWIN}")
    done(node.network("confirm", via=local), "confirmed=yes")
    assert (node.addresses(), node.mtu()) == (DELIVERED, 9000)
    assert node.link_local(TWIN) == local
    assert f"{TWIN}:connected:netplan-{TWIN}" in node.root("nmcli -t -f DEVICE,STATE,CONNECTION device")
    assert "renderer: NetworkManager" in node.root(f"cat {OWN}")
    ended = node.network("apply")
    done(ended, "changed=none")
    assert ended.stderr == ""


def test_no_other_profile_of_networkmanager_wins_at_boot(networkmanager: Rails) -> None:
    node = networkmanager
    node.root(
        f"nmcli connection add type ethernet con-name rival ifname {TWIN} ipv4.method manual "
        "ipv4.addresses 192.168.201.50/24 connection.autoconnect-priority 10; nmcli connection up rival"
    )
    assert node.addresses()[1] == "192.168.201.50/24"
    try:
        done(node.network("apply"), f"changed={TWIN}")
        done(node.network("confirm"), "confirmed=yes")
        assert node.addresses() == DELIVERED
        node.reboot()
        eventually(lambda: node.root("systemctl is-active NetworkManager || true") == "active")
        node.root(f"nmcli device set {TWIN} managed yes")
        eventually(lambda: len(node.addresses()) == 2)
        assert node.addresses() == DELIVERED
        node.lab.wait_ready("worker")
    finally:
        node.root("nmcli connection delete rival")
