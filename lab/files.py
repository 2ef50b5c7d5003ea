"""The files that make a bare node image this node: netplan, host key, engine settings, RDMA facts."""

from __future__ import annotations

import hashlib
import io
import ipaddress
import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.topology import REGISTRY_ADDRESS, REGISTRY_PORT, USER, Nic, Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SYSFS_ROOT = "/opt/spark-lab/sysfs"
_USER_ID = 1000


@dataclass(frozen=True)
class File:
    """The content of one file and who may read it."""

    text: str
    mode: int = 0o644
    owner: int = 0


def node_files(instance: str, node: Node, host_key: str, authorized_key: str) -> dict[str, File]:
    """Everything that tells a node from another.

    Args:
        instance: The instance that the node is of.
        node: Which one.
        host_key: Its private host key.
        authorized_key: The public key of the instance's operator.

    Returns:
        Files by absolute path.
    """
    decoys = [nic for nic in node.nics if nic not in node.rails]
    machine_id = hashlib.sha256(f"{instance}/{node.name}".encode()).hexdigest()[:32]
    files = {
        "/etc/machine-id": File(f"{machine_id}\n", 0o444),
        "/etc/netplan/10-lab.yaml": File(_netplan(decoys), 0o600),
        "/etc/netplan/40-cx7.yaml": File(_netplan(node.rails), 0o600),
        "/etc/ssh/ssh_host_ed25519_key": File(host_key, 0o600),
        f"/home/{USER}/.ssh/authorized_keys": File(authorized_key, 0o600, _USER_ID),
    }
    if node.is_head:
        insecure = {"insecure-registries": [f"{REGISTRY_ADDRESS}:{REGISTRY_PORT}"]}
        files["/etc/docker/daemon.json"] = File(json.dumps(insecure))
    for nic in node.rails:
        files |= _rdma_device(nic)
    return files


def tar(files: Mapping[str, File]) -> bytes:
    """The files, and folders for those below a home, as `docker cp - NODE:/` takes them."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, file in files.items():
            if file.owner:
                folder = tarfile.TarInfo(path.rpartition("/")[0].lstrip("/"))
                folder.type, folder.mode, folder.uid, folder.gid = (
                    tarfile.DIRTYPE,
                    0o700,
                    file.owner,
                    file.owner,
                )
                archive.addfile(folder)
            data = file.text.encode()
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.uid, entry.gid = len(data), file.mode, file.owner, file.owner
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def _netplan(nics: Iterable[Nic]) -> str:
    lines = ["network:", "  version: 2", "  ethernets:"]
    for nic in nics:
        lines += [
            f"    {nic.name}:",
            f"      addresses: [{nic.address}]",
            "      dhcp4: no",
            f"      mtu: {nic.mtu}",
        ]
        if nic.gateway:
            lines += ["      routes:", f"        - {{to: default, via: {nic.gateway}}}"]
    return "\n".join(lines) + "\n"


def _rdma_device(nic: Nic) -> dict[str, File]:
    """What the kernel of a Spark says of a rail's RDMA device; the lab's kernel has none."""
    root = f"{SYSFS_ROOT}/class/infiniband/{nic.rdma_device}"
    address = ipaddress.ip_interface(nic.address).packed.hex()
    return {
        f"{root}/device/net/{nic.name}/address": File(f"{nic.mac}\n"),
        f"{root}/ports/1/state": File("4: ACTIVE\n"),
        f"{root}/ports/1/phys_state": File("5: LinkUp\n"),
        f"{root}/ports/1/link_layer": File("Ethernet\n"),
        f"{root}/ports/1/gids/3": File(f"0000:0000:0000:0000:0000:ffff:{address[:4]}:{address[4:]}\n"),
        f"{root}/ports/1/gid_attrs/types/3": File("RoCE v2\n"),
    }
