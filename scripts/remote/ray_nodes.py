"""Wait until a Ray cluster has exactly the expected nodes: runs inside a container with Ray.

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
from typing import Any, NoReturn

TIMED_OUT = 4
ALIVE = 0  # GcsNodeInfo.GcsNodeState.ALIVE
POLL_SECONDS = 1.0
REPORT_SECONDS = 5.0


class Control:
    """The control store of a head that may come, go and come again."""

    def __init__(self, address: str) -> None:
        """Remember the head's `host:port`; the connection is made when it is first asked."""
        self._address = address
        self._client: Any = None

    def alive(self) -> dict[str, float]:
        """GPUs by address of the nodes that are alive; several on one address count as one.

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
        gpus: dict[str, float] = {}
        for node in nodes:
            if node.state == ALIVE:
                address = str(node.node_manager_address)
                gpus[address] = gpus.get(address, 0.0) + float(node.resources_total.get("GPU", 0.0))
        return gpus


def shortfall(alive: dict[str, float], expected: list[str], gpus: float) -> str:
    """What keeps the cluster from being the expected one.

    Returns:
        One line, or nothing.
    """
    present = [address for address in expected if address in alive]
    faults = []
    if missing := [address for address in expected if address not in alive]:
        faults.append(f"missing {', '.join(missing)}")
    if strangers := sorted(set(alive) - set(expected)):
        faults.append(f"not expected {', '.join(strangers)}")
    if poor := [address for address in present if alive[address] < gpus]:
        faults.append(
            "too few GPUs " + ", ".join(f"{address} ({alive[address]:g} of {gpus:g})" for address in poor)
        )
    return f"{len(present)} of {len(expected)} nodes, {', '.join(faults)}" if faults else ""


def wait(control: Control, options: argparse.Namespace) -> None:
    """Poll until the cluster is complete and has been for a while; the caller bounds the time."""
    state = State(options.address, options.timeout)
    expected = options.expect.split(",")
    complete_since: float | None = None
    while True:
        try:
            alive = control.alive()
            fault = shortfall(alive, expected, options.gpus)
        except Exception as error:  # noqa: BLE001
            fault = f"no answer from the Ray head at {options.address}: {first_line(error)}"
        now = time.monotonic()
        if fault:
            complete_since = None
        elif complete_since is None:
            complete_since = now
        if complete_since is not None and now - complete_since >= options.stable:
            print(f"nodes={','.join(expected)}\ngpus={sum(alive.values()):g}", flush=True)
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
    parser.add_argument("--expect", required=True, help="the nodes' addresses, separated by commas")
    parser.add_argument("--gpus", type=float, default=1, help="that each must have")
    parser.add_argument("--stable", type=float, default=5, metavar="SECONDS")
    parser.add_argument("--timeout", type=float, required=True, metavar="SECONDS")
    options = parser.parse_args()
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    wait(Control(options.address), options)


if __name__ == "__main__":
    main()
