from __future__ import annotations

import io
import tarfile

import pytest

from lab.files import node_files, tar
from lab.topology import nodes, short_id


def test_pair_is_the_real_one() -> None:
    head, worker = nodes("x", workers=1)

    assert [(nic.name, nic.fabric, nic.address, nic.mtu) for nic in head.nics] == [
        ("enP7s7", "mgmt", "10.1.230.180/24", 1500),
        ("enp1s0f0np0", "rail0", "192.168.200.12/24", 9000),
        ("enP2p1s0f0np0", "rail1", "192.168.201.12/24", 9000),
    ]
    assert [(nic.name, nic.fabric) for nic in worker.nics] == [
        ("wlP9s9", "wifi"),
        ("enp1s0f0np0", "rail0"),
        ("enP2p1s0f0np0", "rail1"),
    ]
    assert worker.ssh_address == "192.168.200.13"


def test_rdma_devices_are_named_as_on_a_spark() -> None:
    _, worker = nodes("x", workers=1, worker_interfaces=("enp1s0f1np1", "enP2p1s0f1np1"))

    assert [nic.rdma_device for nic in worker.nics] == [None, "rocep1s0f1", "roceP2p1s0f1"]


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_every_address_and_mac_is_there_once(workers: int) -> None:
    found = nodes("x", workers=workers)
    nics = [nic for node in found for nic in node.nics]

    assert [node.name for node in found[:3]] == ["head", "worker", "worker2"][: workers + 1]
    assert len({nic.address for nic in nics}) == len({nic.mac for nic in nics}) == len(nics)


def test_instances_share_no_mac_and_no_link_name() -> None:
    macs = [{nic.mac for node in nodes(name, 2) for nic in node.nics} for name in ("one", "two")]

    assert macs[0].isdisjoint(macs[1])
    assert short_id("one") != short_id("two")


def test_private_files_are_private() -> None:
    head = nodes("x", workers=1)[0]
    files = node_files("x", head, host_key="secret", authorized_key="public")

    with tarfile.open(fileobj=io.BytesIO(tar(files))) as archive:
        entries = {entry.name: (entry.mode, entry.uid) for entry in archive}

    assert entries["etc/ssh/ssh_host_ed25519_key"] == (0o600, 0)
    assert entries["etc/netplan/40-cx7.yaml"] == (0o600, 0)
    assert entries["home/aurora/.ssh"] == (0o700, 1000)
    assert entries["home/aurora/.ssh/authorized_keys"] == (0o600, 1000)


def test_gid_holds_the_rails_address() -> None:
    head = nodes("x", workers=1)[0]
    files = node_files("x", head, host_key="", authorized_key="")

    gid = files["/opt/spark-lab/sysfs/class/infiniband/rocep1s0f0/ports/1/gids/3"].text

    assert gid == "0000:0000:0000:0000:0000:ffff:c0a8:c80c\n"
