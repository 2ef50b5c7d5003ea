"""Nodes as containers of the outer engine: made, booted, waited for, removed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.build import build_image
from lab.disks import Disks
from lab.files import node_files, tar
from lab.record import public_key
from lab.shell import LabError, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.links import Links
    from lab.outer import Outer
    from lab.record import Folder
    from lab.topology import Node

READY_SECONDS = 60
_CAPABILITIES = (
    "SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "SYS_CHROOT", "MKNOD", "DAC_READ_SEARCH",
    "SYS_NICE", "IPC_LOCK", "AUDIT_CONTROL", "SYS_BOOT",
)  # fmt: skip
_UNCONFINED = ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined")


@dataclass(frozen=True)
class Nodes:
    """The containers that are the nodes of one instance."""

    outer: Outer
    folder: Folder
    links: Links

    def container(self, node: str) -> str:
        """The name of the container that is this node."""
        return f"{self.folder.name}-{node}"

    def volume(self, node: str) -> str:
        """The name of the volume that holds what a node's engine keeps."""
        return f"{self.container(node)}-docker"

    def states(self) -> dict[str, str]:
        """Docker's word for the state of each node that there is."""
        rows = self.outer.docker(
            "ps", "--all", f"--filter=label={self._label}", '--format={{.Label "spark-lab.node"}} {{.State}}'
        )
        return dict(row.split(maxsplit=1) for row in rows.splitlines())

    def start(self, nodes: Sequence[Node], disk: str | None = None) -> None:
        """Let nodes run, whatever state they are in, with all their cables.

        Args:
            nodes: Which ones.
            disk: The image that those which are made now have from an earlier life (lab/disks.py).
        """
        states = self.states()
        for node in nodes:
            state = states.get(node.name)
            if state == "paused":
                self.outer.docker("unpause", self.container(node.name))
            elif state != "running":
                self.links.take_out(node)
                if state in (None, "created"):
                    self._create(node, disk)
                say(f"starting {node.name}")
                self.outer.docker("start", self.container(node.name))
        names = [node.name for node in nodes]
        pids = self.outer.docker("inspect", "--format={{.State.Pid}}", *map(self.container, names))
        running = dict(zip(names, map(int, pids.split()), strict=True))
        for name in (name for name, pid in running.items() if not pid):
            last = self.outer.docker("logs", "--tail=5", self.container(name))
            raise LabError(
                f"Node {name} ended as soon as it was started. Too many nodes on this machine use up "
                f"fs.inotify.max_user_instances; its last words: {last or 'none'}"
            )
        self.links.plug_in(nodes, running)

    def wait_ready(self, node: Node, seconds: float) -> None:
        """Wait until a node has its addresses and its sshd and engine answer.

        Raises:
            LabError: It did not in time.
        """
        addresses = "".join(f' && grep -qF " {nic.address} " <<<"$have"' for nic in node.nics)
        check = f"have=$(ip -o -4 address show){addresses} && systemctl -q is-active ssh && docker version"
        # one process that waits: each that is sent in costs more than the question
        wait = f"until {{ {check}; }} >/dev/null 2>&1; do sleep 0.2; done"
        argv = ("timeout", f"{seconds:.0f}", "bash", "-c", wait)
        if self.outer.attempt("exec", self.container(node.name), *argv).returncode:
            raise LabError(
                f"Node {node.name} lacks an address, sshd or Docker after {seconds:.0f} s: look with "
                f"python -m lab exec {node.name} journalctl, or python -m lab reboot {node.name}."
            )

    def remove(self) -> None:
        """Remove the containers and their volumes."""
        for kind, remove in (("ps --all", "rm --force --volumes"), ("volume ls", "volume rm")):
            found = self.outer.docker(*kind.split(), "--quiet", f"--filter=label={self._label}").split()
            if found:
                self.outer.docker(*remove.split(), *found)

    @property
    def _label(self) -> str:
        return f"spark-lab.instance={self.folder.name}"

    def _create(self, node: Node, disk: str | None) -> None:
        """Make the container; one that never ran may lack its files, so it is made anew."""
        container = self.container(node.name)
        self.outer.attempt("rm", "--force", container)
        image = node_image(self.outer)
        volume = self.outer.docker("volume", "create", f"--label={self._label}", self.volume(node.name))
        if disk is not None:
            Disks(self.outer).give(disk, volume.strip())
        ipv6 = Path("/proc/sys/net/ipv6").exists()
        self.outer.docker(
            "create", f"--name={container}", f"--hostname={node.name}", f"--label={self._label}",
            f"--label=spark-lab.node={node.name}", "--network=none", f"--add-host={node.name}:127.0.1.1",
            "--cgroupns=private", "--device-cgroup-rule=a *:* rwm", "--shm-size=2g",
            "--tmpfs=/run", "--tmpfs=/run/lock", f"--volume={volume}:/var/lib/docker",
            *(f"--cap-add={capability}" for capability in _CAPABILITIES),
            *(f"--security-opt={option}" for option in _UNCONFINED),
            *(f"--sysctl=net.ipv6.conf.{scope}.disable_ipv6=0" for scope in ("all", "default") if ipv6),
            image,
        )  # fmt: skip
        host_key = self.folder.host_key(node.name).read_text()
        files = node_files(self.folder.name, node, host_key, f"{public_key(self.folder.key)}\n")
        self.outer.docker("cp", "-", f"{container}:/", stdin=tar(files))


def node_image(outer: Outer) -> str:
    """The image of a node, built if need be.

    Returns:
        Its tag.
    """
    return build_image(outer, Path(__file__).with_name("node"), "spark-lab/node")
