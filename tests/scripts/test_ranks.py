"""What holds the ranks of `mp` together, as processes of their own over TCP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from components.remote import SCRIPTS
from tests.images.programs import free_port, until


class Ranks:
    """The processes of one group, each with a folder of its own."""

    def __init__(self, place: Path, health: str) -> None:
        self.place, self.health, self.port = place, health, free_port()
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, *, generation: str = "one", names: str = "head,worker,worker2") -> Path:
        folder = self.place / f"{rank}-{len(self.running)}"
        folder.mkdir()
        env = {
            "PATH": os.environ["PATH"],
            "SPARK_RANK": str(rank),
            "SPARK_RANKS": names,
            "SPARK_GENERATION": generation,
            "SPARK_LIFELINE": f"127.0.0.1:{self.port}",
            "SPARK_HEALTH": self.health,
        }
        with (folder / "log").open("wb") as log:
            self.running.append(
                subprocess.Popen(
                    [sys.executable, str(SCRIPTS / "ranks.py"), str(folder)], env=env, stderr=log
                )
            )
        return folder

    def log(self, folder: Path) -> str:
        return (folder / "log").read_text()


@pytest.fixture
def healthy() -> threading.Event:
    """Whether the API answers."""
    return threading.Event()


@pytest.fixture
def ranks(tmp_path: Path, healthy: threading.Event) -> Iterator[Ranks]:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if healthy.is_set() and self.path == "/health" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        group = Ranks(tmp_path, f"http://127.0.0.1:{server.server_port}/health")
        yield group
        for process in group.running:
            process.kill()
            process.wait()
        server.shutdown()


def all_have(folders: list[Path], name: str) -> Callable[[], bool]:
    return lambda: all((folder / name).exists() for folder in folders)


def test_none_starts_before_all_are_there_and_all_hear_when_the_api_answers(
    ranks: Ranks, healthy: threading.Event
) -> None:
    head, worker = ranks.start(0), ranks.start(1)
    until(lambda: "waiting for rank 2 (worker2)" in ranks.log(head))
    assert not any((folder / "together").exists() for folder in (head, worker))

    folders = [head, worker, ranks.start(2)]

    until(all_have(folders, "together"))
    time.sleep(1.5)
    assert not any((folder / "ready").exists() for folder in folders)
    healthy.set()
    until(all_have(folders, "ready"))


@pytest.mark.parametrize("lost", [0, 1])
def test_all_end_when_one_is_lost_and_they_meet_again(ranks: Ranks, lost: int) -> None:
    until(all_have([ranks.start(rank) for rank in range(3)], "together"))

    ranks.running[lost].send_signal(signal.SIGKILL)

    until(lambda: all(process.poll() is not None for process in ranks.running))
    words = {ranks.log(folder) for folder in ranks.place.iterdir()}
    name = ("rank 0 (head)", "rank 1 (worker)")[lost]
    assert any(f"lost {name}" in each for each in words)
    until(all_have([ranks.start(rank) for rank in range(3)], "together"))


def test_one_that_leaves_before_the_start_is_waited_for_again(ranks: Ranks) -> None:
    head, _ = ranks.start(0), ranks.start(1)
    until(lambda: ranks.log(head).rstrip().endswith("waiting for rank 2 (worker2)"))
    ranks.running[1].kill()
    until(lambda: ranks.log(head).rstrip().endswith("waiting for rank 1 (worker), rank 2 (worker2)"))
    until(all_have([head, ranks.start(1), ranks.start(2)], "together"))


def test_a_rank_of_another_deployment_is_turned_away_and_does_not_start(ranks: Ranks) -> None:
    until(all_have([ranks.start(0, names="head,worker"), ranks.start(1, names="head,worker")], "together"))
    ranks.running[0].kill()
    old = ranks.start(1, generation="another")
    new = ranks.start(0, names="head,worker")
    until(lambda: "is of another deployment" in ranks.log(old))
    assert not (old / "together").exists()
    until(all_have([new, ranks.start(1, names="head,worker")], "together"))


def test_a_taken_port_is_told_in_words(ranks: Ranks) -> None:
    ranks.start(0)
    until(lambda: "waiting for" in ranks.log(ranks.place / "0-0"))
    second = ranks.start(0)
    assert ranks.running[1].wait(5) == 1
    assert "cannot listen on 127.0.0.1:" in ranks.log(second)
    assert "Traceback" not in ranks.log(second)
