"""`ray start`, `ray status` and `ray --version`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, NoReturn

from ray import _cluster
from ray._version import __version__
from ray.exceptions import AuthenticationError

_DEFAULT_PORT = 6379
_JOIN_SECONDS = float(os.environ.get("STUB_RAY_JOIN_S", "10"))
_GIVE_UP_SECONDS = float(os.environ.get("STUB_RAY_GIVE_UP_S", "5"))
_PORTS = (
    "node-manager-port", "object-manager-port", "ray-client-server-port", "metrics-export-port",
    "dashboard-agent-listen-port", "dashboard-agent-grpc-port", "runtime-env-agent-port",
)  # fmt: skip
_IGNORED = (
    "min-worker-port", "max-worker-port", "worker-port-list", "memory", "object-store-memory",
    "include-dashboard", "dashboard-host", "dashboard-port", "temp-dir", "plasma-directory", "labels",
    "log-style", "log-color",
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """Refuses as click does."""

    def error(self, message: str) -> NoReturn:
        self.exit(
            2, f"Usage: {self.prog} [OPTIONS]\nTry '{self.prog} --help' for help.\n\nError: {message}\n"
        )


def main(argv: list[str] | None = None) -> None:
    """Run the command that the arguments name."""
    parser = _Parser(prog="ray", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"ray, version {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser("start", allow_abbrev=False)
    start.add_argument("--head", action="store_true")
    start.add_argument("--block", action="store_true")
    start.add_argument("--disable-usage-stats", action="store_true")
    start.add_argument("--address")
    start.add_argument("--node-ip-address", default="")
    start.add_argument("--node-name", default="")
    start.add_argument("--port", type=int, default=_DEFAULT_PORT)
    start.add_argument("--num-cpus", type=int, default=os.cpu_count())
    start.add_argument("--num-gpus", type=int, default=0)
    start.add_argument("--resources", type=json.loads, default={})
    for name in _PORTS:
        start.add_argument(f"--{name}", type=int, default=0)
    for name in _IGNORED:
        start.add_argument(f"--{name}")
    status = commands.add_parser("status", allow_abbrev=False)
    status.add_argument("--address")
    status.add_argument("-v", "--verbose", action="store_true")
    words = sys.argv[1:] if argv is None else argv
    options, unknown = parser.parse_known_args(words)
    if unknown:
        commands.choices[options.command].error(f"No such option: {unknown[0]}")
    try:
        if options.command == "status":
            _status(options.address)
        elif not options.block:
            subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", *words, "--block"], start_new_session=True
            )
        else:
            _start(options)
    except AuthenticationError as error:
        sys.exit(f"ray.exceptions.AuthenticationError: {error}")


def _start(options: argparse.Namespace) -> None:
    if options.head == bool(options.address):
        sys.exit("Error: Starting a Ray node needs either `--head` or `--address`, and not both.")
    node = _describe(options)
    _record(node)
    held = _listen(node)
    print(f"Local node IP: {node['NodeManagerAddress']}", flush=True)
    if options.head:
        head = f"{node['NodeManagerAddress']}:{options.port}"
        try:
            _cluster.serve(_cluster.Table(node), options.port)
        except OSError:
            sys.exit(f"ConnectionError: Port {options.port} is already in use: {head}")
        _cluster.announce(head, node["NodeID"])
        print("\n--------------------\nRay runtime started.\n--------------------", flush=True)
        signal.signal(signal.SIGTERM, lambda *_: _exit_by(signal.SIGTERM))
        while held:
            time.sleep(3600)
    _follow(_cluster.Client(options.address), node)
    # The raylet has ended with status 0, which `--block` takes for wanted: it goes on blocking.
    for port in held:
        port.close()
    while True:
        time.sleep(3600)


def _follow(client: _cluster.Client, node: _cluster.Node) -> None:
    """Be a member until it is drained, or the head or a signal ends it."""
    end = time.monotonic() + _JOIN_SECONDS
    while True:
        try:
            status, words = client.post("register", node)
            break
        except OSError as error:
            if time.monotonic() > end:
                sys.exit(f"ConnectionError: Failed to connect to GCS at {client.address}: {error}")
            time.sleep(0.5)
    if status != 200:  # noqa: PLR2004
        sys.exit(f"RuntimeError: {words}")
    _cluster.announce(client.address, node["NodeID"])
    print("\n--------------------\nRay runtime started.\n--------------------", flush=True)

    def drain(*_: object) -> None:
        with contextlib.suppress(OSError):
            client.post("drain", node["NodeID"])
        _exit_by(signal.SIGTERM)

    signal.signal(signal.SIGTERM, drain)
    answered = time.monotonic()
    while True:
        time.sleep(_cluster.HEARTBEAT_SECONDS)
        try:
            status, words = client.post("heartbeat", node["NodeID"])
            answered = time.monotonic()
        except OSError as error:
            status, words = 0, f"no answer from the GCS at {client.address}: {error}"
        if status == _cluster.DRAINED:
            return
        if status == _cluster.GONE or time.monotonic() - answered > _GIVE_UP_SECONDS:
            sys.exit(f"Some Ray subprocesses exited unexpectedly:\n  raylet [exit code=1]: {words}")


def _describe(options: argparse.Namespace) -> _cluster.Node:
    """This node, in the structure of `ray.nodes()`."""
    address = options.node_ip_address or _cluster.default_address()
    resources = {
        "CPU": float(options.num_cpus), "memory": 1e9, "object_store_memory": 1e9,
        f"node:{address}": 1.0, **options.resources,
    }  # fmt: skip
    if options.num_gpus:
        resources["GPU"] = float(options.num_gpus)
    if options.head:
        resources["node:__internal_head__"] = 1.0
    return {
        "NodeID": uuid.uuid4().hex + uuid.uuid4().hex[:24],
        "Alive": True,
        "NodeManagerAddress": address,
        "NodeManagerHostname": socket.gethostname(),
        "NodeManagerPort": options.node_manager_port,
        "ObjectManagerPort": options.object_manager_port,
        "NodeName": options.node_name or address,
        "DeathReason": 0,
        "DeathReasonMessage": "",
        "alive": True,
        "Resources": resources,
        "Labels": {},
        "Versions": [__version__, platform.python_version()],
    }


def _listen(node: _cluster.Node) -> list[socket.socket]:
    """Hold the raylet's ports, which need the node's own address and must be free."""
    address = node["NodeManagerAddress"]
    try:
        return [
            socket.create_server((address, node[key])) for key in ("NodeManagerPort", "ObjectManagerPort")
        ]
    except OSError as error:
        sys.exit(f"raylet exited: it can't listen on {address}: {error}")


def _record(node: dict[str, Any]) -> None:
    folder = Path(os.environ.get("STUB_DIR", "/tmp/stub"))  # noqa: S108
    folder.mkdir(parents=True, exist_ok=True)
    record = {"argv": sys.argv[1:], "env": dict(os.environ), "node": node}
    (folder / "ray-start.json").write_text(json.dumps(record, indent=1))


def _status(address: str | None) -> None:
    head = address or os.environ.get("RAY_ADDRESS") or _cluster.current_head()
    try:
        nodes = _cluster.Client(head).nodes() if head else None
    except OSError:
        nodes = None
    if nodes is None:
        sys.exit("ConnectionError: Could not find any running Ray instance.")
    alive = [node for node in nodes if node["Alive"]]
    gpus = sum(node["Resources"].get("GPU", 0.0) for node in alive)
    print("======== Autoscaler status ========\nNode status\n" + "-" * 63 + "\nActive:")
    for node in alive:
        print(f" 1 node_{node['NodeID']}")
    print("Pending:\n (no pending nodes)\nRecent failures:")
    for node in nodes:
        if not node["Alive"]:
            print(f" {node['NodeManagerAddress']}: {node['DeathReasonMessage']}")
    print(f"\nResources\n{'-' * 63}\nTotal Usage:\n 0.0/{gpus:.1f} GPU")


def _exit_by(number: signal.Signals) -> NoReturn:
    """End by the signal itself, as Ray does."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


if __name__ == "__main__":
    main()
