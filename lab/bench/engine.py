"""What the engine, the program and the operator's commands cost where nothing changes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ruamel.yaml import YAML

from lab.bench.figures import Figure, Kind, alternately, seconds
from lab.bench.pair import instance, stub_pair
from lab.deployment import ROOT, Deployment
from lab.shell import LabError

GROUP = "nothing changes"
EMPTY = "name: empty\nruntime:\n  name: python\n  options: {virtualenv: VENV}\n"


def measure(rounds: int) -> Iterator[Figure]:
    """Measure with the stub image; its containers are no part of it."""
    with instance("engine") as lab:
        pair = stub_pair(lab)
        yield from of(pair, rounds)
        pair.must("destroy")


def of(pair: Deployment, rounds: int) -> Iterator[Figure]:
    """Measure a deployment that is as its stack file says."""
    pair.must("up", "--refresh")
    yield from _against_an_empty_program(pair, rounds)
    yield _scale(pair, rounds)
    yield from _operators_commands(pair, rounds)
    yield _memory(pair)


def _against_an_empty_program(pair: Deployment, rounds: int) -> Iterator[Figure]:
    empty = _empty(pair)
    limits = {"preview": 1.0, "up": 1.5, "up --refresh": 3.0}
    for words, limit in limits.items():
        argv = words.split()
        samples = alternately(
            rounds,
            {
                "ours": lambda argv=argv: seconds(lambda: pair.must(*argv)),  # type: ignore[misc]
                "empty": lambda argv=argv: seconds(lambda: empty.must(*argv)),  # type: ignore[misc]
            },
        )
        yield Figure(
            name=f"no-change {words}",
            group=GROUP,
            what=f"`pulumi {words}` where nothing changed",
            against="the same of an empty program",
            kind=Kind.DIFFERENCE,
            measured=samples["ours"],
            reference=samples["empty"],
            reach=limit,
            real_pair="carries over, but for the operator's processor",
            note="imports of the program, a process for each Docker provider, and what a refresh asks",
        )


def _empty(pair: Deployment) -> Deployment:
    """A program without resources, in the same backend."""
    place = pair.scratch / "empty"
    place.mkdir()
    (place / "Pulumi.yaml").write_text(EMPTY.replace("VENV", str(ROOT / ".venv")))
    (place / "__main__.py").write_text("import pulumi\n")
    empty = Deployment(pair.lab, "empty", pair.environment, place / "Pulumi.empty.yaml", place, root=place)
    empty.must("stack", "init", "empty")
    empty.must("up")
    return empty


def _scale(pair: Deployment, rounds: int) -> Figure:
    def of(count: int) -> Callable[[], float]:
        file = many_nodes(pair, count)
        argv = ["pulumi", "preview", "--non-interactive", f"--stack={pair.stack}", f"--config-file={file}"]
        environment = pair.process_environment()
        return lambda: seconds(
            lambda: subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, check=True)
        )

    samples = alternately(max(2, rounds // 2), {"64": of(64), "2": of(2)})
    return Figure(
        name="preview of 64 nodes",
        group=GROUP,
        what="`pulumi preview` of 64 nodes",
        against="of 2 nodes",
        measured=samples["64"],
        reference=samples["2"],
        reach=6.0,
        real_pair="carries over",
        note="three quarters are the engine and the program, the rest one plugin process for each node",
    )


def many_nodes(pair: Deployment, count: int) -> Path:
    """A stack file like the pair's with that many nodes, which only a preview can use."""
    document = YAML().load(pair.config_file)
    head, worker = document["config"]["spark-vllm:nodes"]
    nodes = [head, worker]
    for number in range(2, count):
        more = json.loads(json.dumps(worker))
        more["name"] = f"worker{number}"
        for rail in more["rails"]:
            rail["address"] = re.sub(r"\d+/24$", f"{100 + number}/24", rail["address"])
        more["ssh"]["host"] = more["rails"][0]["address"].removesuffix("/24")
        nodes.append(more)
    document["config"]["spark-vllm:nodes"] = nodes
    file = pair.scratch / f"{count}-nodes.yaml"
    YAML().dump(document, file)
    return file


def _operators_commands(pair: Deployment, rounds: int) -> Iterator[Figure]:
    def trip() -> float:
        return seconds(lambda: pair.lab.ssh("worker", "true"))

    def command(name: str) -> Callable[[], float]:
        argv = [str(ROOT / "bin" / "spark-vllm"), name, f"--stack={pair.stack}"]
        argv += [f"--config-file={pair.config_file}", "--json"]
        return lambda: seconds(
            lambda: subprocess.run(argv, env=pair.process_environment(), capture_output=True, check=False)
        )

    samples = alternately(rounds, {"trip": trip, "status": command("status"), "doctor": command("doctor")})
    for name in ("status", "doctor"):
        yield Figure(
            name=name,
            group=GROUP,
            what=f"`spark-vllm {name}` on a pair",
            against="one SSH round trip to the worker",
            measured=samples[name],
            reference=samples["trip"],
            reach=5.0,
            real_pair="carries over; a trip to a real pair is shorter, so the start of Python weighs more",
            note="a third is the start of Python and its imports",
        )


def _memory(pair: Deployment) -> Figure:
    argv = [
        "pulumi", "up", "--refresh", "--yes", "--skip-preview", "--non-interactive", f"--stack={pair.stack}",
        f"--config-file={pair.config_file}",
    ]  # fmt: skip
    peaks: list[float] = []
    with subprocess.Popen(
        argv, cwd=ROOT, env=pair.process_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        watch = threading.Thread(target=_watch, args=(process, peaks))
        watch.start()
        process.wait()
        watch.join()
    if process.returncode:
        raise LabError("pulumi up --refresh failed while its memory was looked at.")
    return Figure(
        name="operator's memory",
        group=GROUP,
        what="memory of `pulumi up --refresh` and all its processes, at most (proportional set size)",
        unit="MB",
        kind=Kind.VALUE,
        measured=(max(peaks),),
        reach=1000,
        real_pair="carries over",
    )


def _watch(process: subprocess.Popen[bytes], peaks: list[float]) -> None:
    while process.poll() is None:
        peaks.append(sum(map(_memory_of, _family(process.pid))) / 1000)
        time.sleep(0.1)


def _family(pid: int) -> set[int]:
    """A process and all that it has started."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                status = Path(entry.path, "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
    found = {pid}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def _memory_of(pid: int) -> int:
    """Kilobytes, shared pages divided among those who share them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
