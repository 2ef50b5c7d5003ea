"""What the doctor says of the facts of a deployment: pure judgement, no connection.

Each check is a function from facts to findings. What goes wrong on Sparks, and why, is told in the remedies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from components.remote import pairs
from components.settings import Settings
from scripts.containers import Container, read
from scripts.units import GIB, KIB

FULL_SHARE = 0.95
"""A disk that is fuller leaves no room for a log or a compile."""
CLOCK_SECONDS = 2.0
"""Apart by more, Ray's and the logs' times mislead."""
# RDMA's memory registration fails with ENOMEM there, whatever memlock says:
# https://github.com/MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark/issues/259
BAD_KERNEL = re.compile(r"7\.0\.0-(1019|31)\b")
CONNECTX7_GBITS = 200
"""What a port of a Spark speaks: https://docs.nvidia.com/dgx/dgx-spark/spark-clustering.html."""


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's.

    Attributes:
        node: The node, or empty for the deployment as a whole.
        check: What was looked at.
        level: How bad it is.
        words: What was found.
        remedy: What to do; empty if all is well.
    """

    node: str
    check: str
    level: Level
    words: str
    remedy: str = ""


@dataclass(frozen=True)
class Facts:
    """What doctor.sh and link.sh found on a node.

    Attributes:
        node: The node.
        fault: Why it is out of reach; all else is empty then.
        values: What was printed once.
        disks: What for, free and total bytes, path.
        ports: Ports of the deployment on which something listens.
        strangers: Containers of others that hold the GPU.
        containers: Ours.
        link_fault: What link.sh found wrong, or empty.
        skew: Seconds by which the node's clock is ahead of this machine's, give or take the round trip.
    """

    node: str
    fault: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    disks: Sequence[tuple[str, int, int, str]] = ()
    ports: Sequence[int] = ()
    strangers: Sequence[str] = ()
    containers: Sequence[Container] = ()
    link_fault: str = ""
    skew: float = 0.0

    @classmethod
    def parse(cls, node: str, out: str, *, link_fault: str, skew: float) -> Facts:
        """Read what doctor.sh printed."""
        values: dict[str, str] = {}
        disks, ports, strangers = [], [], []
        for key, value in pairs(out):
            if key == "disk":
                what, free, total, path = value.split(maxsplit=3)
                disks.append((what, int(free), int(total), path))
            elif key == "port_taken":
                ports.append(int(value))
            elif key == "gpu_stranger":
                strangers.append(value)
            elif key != "container":
                values[key] = value
        return cls(node, "", values, disks, ports, strangers, read(out), link_fault, skew)

    def kib(self, key: str) -> int:
        """A size in bytes."""
        return int(self.values.get(key) or 0) * KIB


Check = Callable[[Settings, Sequence[Facts]], Iterator[Finding]]


def judge(settings: Settings, facts: Sequence[Facts]) -> list[Finding]:
    """All findings about the nodes, node by node and then about what must be equal on them."""
    reached = [each for each in facts if not each.fault]
    findings = [
        Finding(each.node, "SSH", Level.PROBLEM, each.fault, "Without it nothing else is known of this node.")
        if each.fault
        else Finding(each.node, "SSH", Level.OK, f"as {each.values.get('user', '?')}, host key as pinned")
        for each in facts
    ]
    for check in CHECKS:
        findings += check(settings, reached)
    return findings


def _sudo(_settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    for each in facts:
        if each.values.get("sudo"):
            yield Finding(each.node, "sudo", Level.OK, "without a password")
        else:
            user = each.values.get("user", "you")
            yield Finding(
                each.node,
                "sudo",
                Level.WARNING,
                "asks for a password: rails are only checked, and no page cache is dropped before a load",
                f"`{user} ALL=(root) NOPASSWD: /usr/bin/bash` in /etc/sudoers.d (docs/network.md).",
            )


def _docker(settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    for each in facts:
        if fault := each.values.get("docker_fault"):
            yield Finding(
                each.node,
                "Docker",
                Level.PROBLEM,
                fault,
                f"Is it installed and running, and {each.values.get('user', 'the user')} in the group docker "
                "(sudo usermod -aG docker ..., then log in anew)?",
            )
            continue
        words = f"{each.values.get('docker')}, image store {each.values.get('image_store', '?')}"
        yield Finding(each.node, "Docker", Level.OK, words)
        if settings.container.gpus == "none":
            continue
        if each.values.get("runtime") == "nvidia":
            yield Finding(each.node, "NVIDIA runtime", Level.OK, "Docker has it")
        else:
            yield Finding(
                each.node,
                "NVIDIA runtime",
                Level.PROBLEM,
                "Docker has none, so no container gets the GPU",
                "sudo apt install nvidia-container-toolkit; sudo nvidia-ctk runtime configure "
                "--runtime=docker; sudo systemctl restart docker",
            )


def _links(settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    if len(settings.nodes) < 2:  # noqa: PLR2004
        return
    for each in facts:
        if each.link_fault:
            words = each.link_fault.removeprefix(f"{each.node}: ")
            yield Finding(
                each.node,
                "rails",
                Level.PROBLEM,
                words,
                "docs/network.md; `pulumi up` mends address and MTU.",
            )
        else:
            rails = len(settings.head.rails)
            yield Finding(
                each.node,
                "rails",
                Level.OK,
                f"{rails} up, RDMA active, all peers answer to frames of {settings.network.mtu} bytes",
            )


def _speed(_settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    for each in facts:
        for key, value in each.values.items():
            interface = key.removeprefix("speed_")
            if interface != key and float(value) < CONNECTX7_GBITS:
                yield Finding(
                    each.node,
                    "link speed",
                    Level.WARNING,
                    f"{interface} runs at {value} Gb/s, and a Spark's ports can 200",
                    "Is it the right cable, and in the QSFP port on both ends? `ethtool` shows the speed.",
                )


def _equal(_settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    remedies = {
        "kernel": "Update both alike (sudo apt full-upgrade, reboot).",
        "driver": "Update both alike: NCCL between two drivers hangs or fails in odd ways.",
        "arch": "All nodes must be of one architecture.",
        "docker": "",
    }
    for key, remedy in remedies.items():
        values = {each.node: each.values[key] for each in facts if each.values.get(key)}
        if not values or len(facts) < 2:  # noqa: PLR2004
            continue
        if len(set(values.values())) == 1:
            yield Finding("", key, Level.OK, f"{next(iter(values.values()))} on all nodes")
        elif remedy:
            listed = ", ".join(f"{node} {value}" for node, value in values.items())
            yield Finding("", key, Level.WARNING, f"differs: {listed}", remedy)
    for each in facts:
        if BAD_KERNEL.match(each.values.get("kernel", "")):
            yield Finding(
                each.node,
                "kernel",
                Level.WARNING,
                f"{each.values['kernel']} is known to refuse RDMA memory (ENOMEM)",
                "Boot the kernel before it, or with kho=off.",
            )


def _clocks(_settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    for each in facts:
        if abs(each.skew) > CLOCK_SECONDS:
            direction = "ahead of" if each.skew > 0 else "behind"
            yield Finding(
                each.node,
                "clock",
                Level.WARNING,
                f"{abs(each.skew):.0f} s {direction} this machine's",
                "sudo timedatectl set-ntp true",
            )
        elif each.values.get("ntp") == "no":
            yield Finding(each.node, "clock", Level.OK, "right, though not set by NTP")
        else:
            yield Finding(each.node, "clock", Level.OK, "right")


def _memory(settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    share = settings.vllm.gpu_memory_utilization
    for each in facts:
        total, available = each.kib("memory_total_kib"), each.kib("memory_available_kib")
        wanted = int(total * share)
        free = f"{available / GIB:.0f} of {total / GIB:.0f} GiB free"
        if any(container.state == "running" for container in each.containers):
            yield Finding(each.node, "memory", Level.OK, f"{free}, with ours running")
        elif settings.container.gpus == "none":
            yield Finding(each.node, "memory", Level.OK, free)
        elif available < wanted:
            yield Finding(
                each.node,
                "memory",
                Level.PROBLEM,
                f"{free}, and vllm.gpuMemoryUtilization {share} takes {wanted / GIB:.0f}",
                "See what holds the rest: ps -eo rss,args --sort=-rss | head, nvidia-smi. Or lower it.",
            )
        else:
            cached = each.kib("page_cache_kib")
            yield Finding(
                each.node,
                "memory",
                Level.OK,
                f"{free} ({cached / GIB:.0f} of them page cache), {wanted / GIB:.0f} wanted",
            )


def _strangers(_settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    for each in facts:
        if each.strangers:
            names = ", ".join(each.strangers)
            yield Finding(
                each.node,
                "GPU",
                Level.WARNING,
                f"containers of others use it too: {names}",
                f"They share the unified memory with the model: docker stop {' '.join(each.strangers)}",
            )


def _ports(_settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    for each in facts:
        ours = any(container.state in ("running", "restarting") for container in each.containers)
        if each.ports and not ours:
            listed = ", ".join(map(str, each.ports))
            yield Finding(
                each.node,
                "ports",
                Level.PROBLEM,
                f"taken by another program: {listed}",
                f"sudo ss -ltnp 'sport = :{each.ports[0]}' shows which; stop it, or choose another port.",
            )


def _disks(_settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    for each in facts:
        for what, free, total, path in each.disks:
            full = 1 - free / total if total else 1.0
            words = f"{path}: {free / GIB:.0f} of {total / GIB:.0f} GiB free"
            if full > FULL_SHARE:
                yield Finding(
                    each.node,
                    f"disk ({what})",
                    Level.WARNING,
                    words,
                    "`spark-vllm prune` shows images, models and caches that no deployment uses.",
                )
            else:
                yield Finding(each.node, f"disk ({what})", Level.OK, words)


def _memlock(settings: Settings, _facts: Sequence[Facts]) -> Iterator[Finding]:
    if settings.container.memlock != -1 and settings.container.gpus != "none":
        yield Finding(
            "",
            "memlock",
            Level.WARNING,
            f"container.memlock is {settings.container.memlock} bytes",
            "RDMA registers memory and fails with ENOMEM: leave it at -1.",
        )


def _same_content(_settings: Settings, facts: Sequence[Facts]) -> Iterator[Finding]:
    if not facts or any(each.values.get("docker_fault") for each in facts):
        return
    lacking = [each.node for each in facts if not each.values.get("image_there")]
    identities = {each.values.get("image") for each in facts}
    yield _agreement("image", lacking, len(identities), facts, "'**::image-*'")
    lacking = [each.node for each in facts if not each.values.get("model")]
    yield _agreement(
        "model", lacking, len({each.values.get("model") for each in facts}), facts, "'**::model-*'"
    )


def _agreement(
    what: str, lacking: Sequence[str], kinds: int, facts: Sequence[Facts], targets: str
) -> Finding:
    mend = f"pulumi up --refresh --replace {targets}"
    if len(lacking) == len(facts):
        return Finding("", what, Level.WARNING, "not on any node yet", "`pulumi up` brings it.")
    if lacking:
        return Finding("", what, Level.PROBLEM, f"not on {', '.join(lacking)}", mend)
    if kinds > 1:
        return Finding("", what, Level.PROBLEM, "not the same on all nodes", mend)
    return Finding("", what, Level.OK, "the same on all nodes" if len(facts) > 1 else "there")


CHECKS: tuple[Check, ...] = (
    _sudo,
    _docker,
    _links,
    _speed,
    _clocks,
    _memory,
    _memlock,
    _strangers,
    _ports,
    _disks,
    _equal,
    _same_content,
)
