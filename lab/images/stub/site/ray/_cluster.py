"""The cluster: a table of nodes that the head keeps and serves over HTTP, and the clients of it."""

from __future__ import annotations

import hmac
import http.client
import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray._auth import required_token
from ray.exceptions import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable

HEARTBEAT_SECONDS = 0.5
DEAD_AFTER_SECONDS = 2.0
DRAINED, UNAUTHORIZED, CONFLICT, GONE = 205, 401, 409, 410

Node = dict[str, Any]


class Table:
    """The nodes of one cluster's life; a head that starts again begins with an empty one."""

    def __init__(self, head: Node) -> None:
        """Begin with the head itself."""
        self._lock = threading.Lock()
        self._head = head
        self._nodes: dict[str, Node] = {head["NodeID"]: head}
        self._seen: dict[str, float] = {}
        self._drained: set[str] = set()

    def register(self, node: Node) -> tuple[int, str]:
        """Take a node in, unless it runs another Ray or Python.

        Returns:
            An HTTP status and words.
        """
        ours, theirs = self._head["Versions"], node["Versions"]
        if ours != theirs:
            return CONFLICT, (
                "Version mismatch: The cluster was started with:\n"
                f"    Ray: {ours[0]}\n    Python: {ours[1]}\n"
                f"This process on node {node['NodeManagerAddress']} was started with:\n"
                f"    Ray: {theirs[0]}\n    Python: {theirs[1]}"
            )
        with self._lock:
            self._nodes[node["NodeID"]] = node
            self._seen[node["NodeID"]] = time.monotonic()
        return 200, ""

    def heartbeat(self, node_id: str) -> tuple[int, str]:
        """Note that a node lives.

        Returns:
            An HTTP status and words: a node that is drained ends in order, one that counts as dead has to go.
        """
        self._bury()
        with self._lock:
            if node_id in self._drained:
                self._mark_dead(node_id, "Termination of node was expected")
                return DRAINED, ""
            node = self._nodes.get(node_id)
            if node is None or not node["Alive"]:
                return GONE, "The node is not a member of this cluster, or was marked dead."
            self._seen[node_id] = time.monotonic()
        return 200, ""

    def drain(self, node_id: str) -> tuple[int, str]:
        """Take a node out."""
        with self._lock:
            self._mark_dead(node_id, "Termination of node was expected")
        return 200, ""

    def shut_down(self, node_ids: list[str]) -> tuple[int, str]:
        """Ask nodes to end when they are next heard of: one that is gone is dead when it is missed."""
        with self._lock:
            self._drained.update(node_ids)
        return 200, ""

    def nodes(self) -> list[Node]:
        """All nodes, as `ray.nodes()` shows them."""
        self._bury()
        with self._lock:
            return [dict(node) for node in self._nodes.values()]

    def _bury(self) -> None:
        now = time.monotonic()
        with self._lock:
            for node_id, seen in self._seen.items():
                if now - seen > DEAD_AFTER_SECONDS:
                    self._mark_dead(node_id, "Unexpected termination: health check failed")

    def _mark_dead(self, node_id: str, reason: str) -> None:
        node = self._nodes.get(node_id)
        if node is not None and node["Alive"]:
            node.update(Alive=False, alive=False, DeathReasonMessage=reason, Resources={})


def serve(table: Table, port: int) -> None:
    """Serve the table on all addresses, as Ray's control store does, in a thread.

    Raises:
        OSError: The port is taken.
    """
    token = required_token()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(lambda: (200, json.dumps(table.nodes())))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            actions: dict[str, Callable[[Any], tuple[int, str]]]
            actions = {
                "/register": table.register,
                "/heartbeat": table.heartbeat,
                "/drain": table.drain,
                "/shut_down": table.shut_down,
            }
            self._answer(lambda: actions[self.path](body))

        def _answer(self, action: Callable[[], tuple[int, str]]) -> None:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            known = token is None or hmac.compare_digest(given, token)
            status, words = action() if known else (UNAUTHORIZED, "")
            data = words.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing of each request."""

    threading.Thread(target=ThreadingHTTPServer(("", port), Handler).serve_forever, daemon=True).start()


class Client:
    """A connection to a head."""

    def __init__(self, address: str) -> None:
        """Remember the head's `host:port` and the token."""
        host, _, port = address.rpartition(":")
        self.address = address
        self._target = (host, int(port))
        self._token = required_token()

    def nodes(self, timeout: float | None = None) -> list[Node]:
        """All nodes that the head knows."""
        found: list[Node] = json.loads(self._ask("GET", "/nodes", None, timeout)[1])
        return found

    def post(self, action: str, content: Any) -> tuple[int, str]:  # noqa: ANN401
        """Ask the head to register, keep or drain a node.

        Returns:
            The HTTP status and its words.
        """
        return self._ask("POST", f"/{action}", json.dumps(content))

    def _ask(self, method: str, path: str, body: str | None, timeout: float | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(*self._target, timeout=timeout or 3)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self._token or ''}"})
            answer = connection.getresponse()
            words = answer.read().decode()
        finally:
            connection.close()
        if answer.status == UNAUTHORIZED:
            raise AuthenticationError(
                "RPC error: InvalidAuthToken: Authentication token is missing or incorrect."
            )
        return answer.status, words


def default_address() -> str:
    """The address that leads to the rest of the world: Ray's guess where none is given."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 53))  # a datagram socket sends nothing here
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _folder() -> Path:
    """Where the processes of a machine find each other: they must share /tmp."""
    return Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray"  # noqa: S108


def announce(head: str, node_id: str) -> None:
    """Tell the processes of this machine of a raylet: this process."""
    sessions = _folder() / "raylets"
    sessions.mkdir(parents=True, exist_ok=True)
    (sessions / node_id).write_text(str(os.getpid()))
    (_folder() / "ray_current_cluster").write_text(head)


def current_head() -> str | None:
    """The head of the cluster that this machine joined last."""
    file = _folder() / "ray_current_cluster"
    return file.read_text() if file.is_file() else None


def local_raylets(nodes: list[Node]) -> list[Node]:
    """The nodes, alive, whose raylet this process sees: in the same /tmp and the same PID namespace."""
    found = []
    for node in nodes:
        file = _folder() / "raylets" / node["NodeID"]
        if node["Alive"] and file.is_file() and Path(f"/proc/{file.read_text()}").exists():
            found.append(node)
    return found
