"""Wait until a Ray cluster has exactly the expected nodes, and drain others: runs in a container with Ray.

Asks Ray's control store as `ray status` does: a driver (`ray.init`) would make Ray start workers, and hangs
for minutes where there is no head yet. Prints `nodes=` and `gpus=`. Status 4: not in time, words on stderr.
"""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMED_OUT = 4
ALIVE = 0  # GcsNodeInfo.GcsNodeState.ALIVE
POLL_SECONDS = 1.0
REPORT_SECONDS = 5.0


@dataclass
class Member:
    """A place in the cluster; what came back to it after a crash may be listed twice for a while."""

    gpus: float = 0
    node_ids: list[bytes] = field(default_factory=list)


class Control:
    """The control store of a head that may come, go and come again."""

    def __init__(self, address: str) -> None:
        """Remember the head's `host:port`; the connection is made when it is first asked."""
        self._address = address
        self._client: Any = None

    def alive(self) -> dict[str, Member]:
        """The nodes that are alive, by `name@address`.

        Raises:
            Exception: There is no head, or it refuses the token.
        """
        try:
            if self._client is None:
                host, _, port = self._address.rpartition(":")
                socket.create_connection((host, int(port)), timeout=3).close()
                self._client = importlib.import_module("ray._raylet").GcsClient(address=self._address)
            nodes = self._client.get_all_node_info(timeout=5).values()
        except Exception:
            self._client = None
            raise
        members: dict[str, Member] = {}
        for node in nodes:
            if node.state == ALIVE:
                member = members.setdefault(f"{node.node_name}@{node.node_manager_address}", Member())
                member.gpus += float(node.resources_total.get("GPU", 0.0))
                member.node_ids.append(node.node_id)
        return members

    def drain(self, members: Iterable[Member]) -> None:
        """Let nodes end in order, busy or not, as Ray's autoscaler does before it takes a machine away.

        `ray start --block` takes such an end for wanted: it goes on blocking, and nothing joins again.

        Raises:
            Exception: There is no head any more.
        """
        self._client.drain_nodes([node_id for member in members for node_id in member.node_ids], timeout=5)


def shortfall(alive: dict[str, Member], options: argparse.Namespace) -> str:
    """What keeps the cluster from being the expected one.

    Returns:
        One line, or nothing.
    """
    expected = options.expect.split(",")
    present = [name for name in expected if name in alive]
    faults = []
    missing = [name for name in expected if name not in alive]
    if missing and not options.missing_ok:
        faults.append(f"missing {', '.join(missing)}")
    if strangers := sorted(set(alive) - set(expected)):
        faults.append(f"not expected {', '.join(strangers)}")
    if poor := [name for name in present if alive[name].gpus < options.gpus]:
        faults.append(
            "too few GPUs " + ", ".join(f"{name} ({alive[name].gpus:g} of {options.gpus:g})" for name in poor)
        )
    return f"{len(present)} of {len(expected)} nodes, {', '.join(faults)}" if faults else ""


def wait(control: Control, options: argparse.Namespace) -> None:
    """Poll until the cluster is complete and has been for a while; the caller bounds the time."""
    state = State(options.address, options.timeout)
    expected = options.expect.split(",")
    complete_since: float | None = None
    while True:
        alive: dict[str, Member] = {}
        try:
            alive = control.alive()
            fault = shortfall(alive, options)
            strangers = [alive[name] for name in set(alive) - set(expected)]
            if strangers and options.drain:
                control.drain(strangers)
        except Exception as error:  # noqa: BLE001
            fault = f"no answer from the Ray head at {options.address}: {first_line(error)}"
        now = time.monotonic()
        if fault:
            complete_since = None
        elif complete_since is None:
            complete_since = now
        if complete_since is not None and now - complete_since >= options.stable:
            gpus = sum(member.gpus for member in alive.values())
            print(f"nodes={','.join(sorted(alive))}\ngpus={gpus:g}", flush=True)
            return
        state.report(fault or f"{len(expected)} of {len(expected)} nodes, watching that they stay")
        time.sleep(POLL_SECONDS)


class State:
    """What is told while it lasts, and at the end if the end is too late."""

    def __init__(self, address: str, timeout: float) -> None:
        """Start the clock: after the timeout the process ends, even where Ray's own code does not return."""
        self._words = f"no answer from the Ray head at {address}"
        self._reported = ("", 0.0)
        self._timeout = timeout
        watch = threading.Timer(timeout, self._expire)
        watch.daemon = True
        watch.start()

    def report(self, words: str) -> None:
        """Say on stderr what is new, or that nothing is, every few seconds."""
        self._words = words
        said, when = self._reported
        if words != said or time.monotonic() - when >= REPORT_SECONDS:
            print(words, file=sys.stderr, flush=True)
            self._reported = (words, time.monotonic())

    def _expire(self) -> NoReturn:
        words = f"The Ray cluster was not complete within {self._timeout:g} s: {self._words}."
        print(words, file=sys.stderr, flush=True)
        os._exit(TIMED_OUT)


def first_line(error: Exception) -> str:
    """An exception's first sentence or line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].split(". ")[0].rstrip(".")


def main() -> None:
    """Wait as the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--address", required=True, help="the head, host:port")
    parser.add_argument("--expect", required=True, help="the nodes, as name@address, separated by commas")
    parser.add_argument("--gpus", type=float, default=0, help="that each must have")
    parser.add_argument("--stable", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--drain", action="store_true", help="let those end that are not expected")
    parser.add_argument("--missing-ok", action="store_true", help="do not wait for those that are not there")
    parser.add_argument("--timeout", type=float, required=True, metavar="SECONDS")
    options = parser.parse_args()
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    wait(Control(options.address), options)


if __name__ == "__main__":
    main()
