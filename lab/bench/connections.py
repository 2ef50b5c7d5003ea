"""How many SSH handshakes an `up` makes, counted at both ends of each connection."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lab.bench.figures import Figure, Kind
from lab.bench.pair import change, instance, stub_pair
from lab.deployment import Deployment

GROUP = "connections"
COMMAND = "command:remote:Command"
RUNS = {"create", "create-replacement"}
# Stands before ssh on the PATH of pulumi: the Docker plugin starts one for each of its connections.
COUNTING = '#!/bin/sh\necho "$*" >>{log}\nPATH=${{PATH#{place}:}} exec ssh "$@"\n'


@dataclass(frozen=True)
class Counts:
    """Of one run.

    Attributes:
        accepted: By each node's sshd.
        docker: How many of them came from the Docker plugin.
        official: How many there were with the official command plugin, which shares none.
    """

    accepted: dict[str, int]
    docker: int
    official: int


def measure(rounds: int) -> Iterator[Figure]:
    """Count with the stub image; a count is no sample, so one run of each is enough."""
    del rounds
    with instance("connections") as lab:
        pair = stub_pair(lab)
        yield from of(pair)
        pair.must("destroy")


def of(pair: Deployment) -> Iterator[Figure]:
    """Count on a deployment that is as its stack file says."""
    pair.must("up", "--refresh")
    for words, flag in (("`up --refresh` where nothing changed", False), ("a flag change", True)):
        if flag:
            change(pair, vllm={"args": {"max-model-len": 500}})
        counts = _count(pair, *([] if flag else ["--refresh"]))
        total = sum(counts.accepted.values())
        by_node = ", ".join(f"{number} at the {node}" for node, number in counts.accepted.items())
        alone = counts.official - counts.docker
        yield Figure(
            name=f"handshakes of {words}".replace("`", ""),
            group=GROUP,
            what=f"SSH handshakes of {words}",
            unit="handshakes",
            kind=Kind.VALUE,
            measured=(total,),
            real_pair="carries over",
            note=f"{by_node}. The Docker plugin started {counts.docker} ssh, which share none; the "
            f"official command plugin shares none of its own, and would make {alone}.",
        )


def _count(pair: Deployment, *options: str) -> Counts:
    place = pair.scratch / "counting"
    log = place / "log"
    place.mkdir(exist_ok=True)
    log.write_text("")
    shim = place / "ssh"
    shim.write_text(COUNTING.format(log=log, place=place))
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    began = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    path = f"{place}:{pair.process_environment()['PATH']}"
    counted = replace(pair, environment={**pair.environment, "PATH": path})
    run = counted.must("up", *options)
    accepted = {
        node: pair.lab.root(
            node, "journalctl", "-u", "ssh", f"--since={began} UTC", "-o", "cat", "--no-pager"
        ).count("Accepted publickey")
        for node in pair.lab.status()["nodes"]
    }
    docker = len(log.read_text().splitlines())
    behind = {
        event.name
        for event in run.events
        if event.type == COMMAND and event.op in RUNS and event.name.endswith("-worker")
    }
    commands = [event for event in run.events if event.type == COMMAND and event.op in RUNS]
    return Counts(accepted, docker, docker + len(commands) + len(behind))
