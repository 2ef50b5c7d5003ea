"""Hold the ranks of one server together: runs beside vLLM in the container of each rank under `mp`.

vLLM itself notices late or never that a rank is lost, and its /health goes on answering 200. So every rank
holds a connection to rank 0 for as long as it lives:

- when all are there, each makes the file `together`, and vLLM may start
- when rank 0's API answers, each makes the file `ready`
- when one is lost each of these processes ends, and with it vLLM (entry.sh); then they meet again

A rank of another deployment, whose container has yet to go, is turned away by its generation.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import socket
import sys
import time
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

TOGETHER, READY, STRANGER = b"together\n", b"ready\n", b"stranger\n"
ANSWER_SECONDS = 3.0
REPORT_SECONDS = 15.0
POLL_SECONDS = 1.0
# A peer that is gone without a word, its power cut say, is missed after half a minute.
KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4}
UNANSWERED_MILLISECONDS = 30_000


class Group(NamedTuple):
    """What this rank knows of all."""

    rank: int
    names: list[str]
    generation: str
    address: tuple[str, int]
    health: str
    folder: Path

    @classmethod
    def of(cls, env: dict[str, str], folder: Path) -> Group:
        """Read it from the environment."""
        host, _, port = env["SPARK_LIFELINE"].rpartition(":")
        return cls(
            rank=int(env["SPARK_RANK"]),
            names=env["SPARK_RANKS"].split(","),
            generation=env["SPARK_GENERATION"],
            address=(host, int(port)),
            health=env["SPARK_HEALTH"],
            folder=folder,
        )

    def called(self, rank: int) -> str:
        """A rank's number and its node."""
        return f"rank {rank} ({self.names[rank]})"

    def mark(self, word: bytes) -> None:
        """Make the file that the entry script, or the readiness check, waits for."""
        say({TOGETHER: "all ranks are there", READY: "the server answers"}[word])
        (self.folder / word.decode().strip()).touch()


class Reporter:
    """Says what is waited for, now and then."""

    def __init__(self) -> None:
        """Nothing has been said yet."""
        self._said = ("", 0.0)

    def waiting(self, words: str) -> None:
        """Say it if it is new, or was last said a while ago."""
        said, when = self._said
        if words != said or time.monotonic() - when >= REPORT_SECONDS:
            say(words)
            self._said = (words, time.monotonic())


def lead(group: Group) -> str:
    """Be rank 0 until another is lost.

    Returns:
        Words for what was lost.
    """
    with socket.create_server(group.address, backlog=128) as server:
        links = gather(group, server)
        for link in links.values():
            tell(link, TOGETHER)
        group.mark(TOGETHER)
        return watch(group, links)


def gather(group: Group, server: socket.socket) -> dict[int, socket.socket]:
    """Wait until every other rank is connected; one that goes away meanwhile is waited for again."""
    reporter = Reporter()
    links: dict[int, socket.socket] = {}
    while missing := [rank for rank in range(1, len(group.names)) if rank not in links]:
        reporter.waiting(f"waiting for {', '.join(map(group.called, missing))}")
        for link in readable([server, *links.values()]):
            if link is server:
                guest, _ = server.accept()
                rank = greet(group, guest)
                if rank is not None:
                    links[rank] = guest
        links = {rank: link for rank, link in links.items() if is_open(link)}
    return links


def greet(group: Group, link: socket.socket) -> int | None:
    """Hear who it is that connected.

    Returns:
        Its rank, or None if it is none of ours.
    """
    keep_alive(link)
    try:
        link.settimeout(ANSWER_SECONDS)
        rank, _, generation = link.makefile("rb").readline().decode(errors="replace").strip().partition(" ")
        link.settimeout(None)
    except OSError:
        return None
    if generation == group.generation and rank.isdecimal() and 0 < int(rank) < len(group.names):
        return int(rank)
    tell(link, STRANGER)
    link.close()
    return None


def watch(group: Group, links: dict[int, socket.socket]) -> str:
    """Wait until a rank is lost, and tell all others when the API answers."""
    answered = False
    while True:
        readable(links.values())
        for rank, link in links.items():
            if not is_open(link):
                return group.called(rank)
        if not answered and answers(group.health):
            answered = True
            group.mark(READY)
            for link in links.values():
                tell(link, READY)


def follow(group: Group) -> str:
    """Be another rank until rank 0 is lost.

    Returns:
        Words for what was lost.
    """
    leader, reporter = group.called(0), Reporter()
    while True:
        reporter.waiting(f"waiting for {leader} at {group.address[0]}:{group.address[1]}")
        with contextlib.suppress(OSError), socket.create_connection(group.address, ANSWER_SECONDS) as link:
            link.settimeout(None)
            keep_alive(link)
            link.sendall(f"{group.rank} {group.generation}\n".encode())
            for word in link.makefile("rb"):
                if word == STRANGER:
                    reporter.waiting(f"{leader} is of another deployment: this container's turn is over")
                if word not in (TOGETHER, READY):
                    break
                group.mark(word)
        if (group.folder / "together").exists():
            return leader
        time.sleep(POLL_SECONDS)


def readable(links: Iterable[socket.socket]) -> list[socket.socket]:
    """The sockets that have something to read, after a second at most."""
    return select.select(list(links), [], [], POLL_SECONDS)[0]


def is_open(link: socket.socket) -> bool:
    """Whether the other end is there; it never says anything after its name."""
    try:
        return link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def keep_alive(link: socket.socket) -> None:
    """Let the kernel notice an end that is gone without a word."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MILLISECONDS)
    for option, value in KEEPALIVE.items():
        link.setsockopt(socket.IPPROTO_TCP, option, value)


def tell(link: socket.socket, word: bytes) -> None:
    """Say a word; whether the other end is gone shows when it is next looked at."""
    with contextlib.suppress(OSError):
        link.sendall(word)


def answers(url: str) -> bool:
    """Whether the API's health is good."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", where.path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def say(words: str) -> None:
    """Say something in the container's log."""
    print(f"spark-vllm: {words}", file=sys.stderr, flush=True)


def main() -> None:
    """Hold on, as the environment says, until something is lost."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/spark")
    for name in ("together", "ready"):
        (folder / name).unlink(missing_ok=True)
    group = Group.of(dict(os.environ), folder)
    try:
        lost = lead(group) if group.rank == 0 else follow(group)
    except OSError as error:
        sys.exit(f"spark-vllm: cannot listen on {group.address[0]}:{group.address[1]}: {error}")
    sys.exit(f"spark-vllm: lost {lost}")


if __name__ == "__main__":
    main()
