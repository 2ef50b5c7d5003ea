"""The stub's Ray and the cluster check, on loopback addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.images.programs import RAY, REMOTE, Machine, free_port

if TYPE_CHECKING:
    import subprocess

CHECK = str(REMOTE / "ray_nodes.py")
ONE = "head@127.0.0.2"
BOTH = f"{ONE},worker@127.0.0.3"


@pytest.fixture
def port() -> int:
    return free_port()


def authentication(token: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {}


def start_head(head: Machine, port: int, **env: str) -> subprocess.Popen[str]:
    argv = ("start", "--head", "--node-ip-address=127.0.0.2", "--node-name=head", f"--port={port}")
    return head.start(*RAY, *argv, "--num-gpus=1", "--block", **env)


def start_worker(worker: Machine, port: int, *argv: str, **env: str) -> subprocess.Popen[str]:
    own = ("start", f"--address=127.0.0.2:{port}", "--node-ip-address=127.0.0.3", "--node-name=worker")
    return worker.start(*RAY, *own, "--num-gpus=1", "--block", *argv, **env)


def check(
    machine: Machine, port: int, *argv: str, timeout: float = 8, token: str = ""
) -> tuple[int, str, str]:
    options = (f"--address=127.0.0.2:{port}", f"--timeout={timeout}", "--stable=0.1", "--gpus=1", *argv)
    done = machine.run(CHECK, *options, **authentication(token))
    return done.returncode, done.stdout, done.stderr


@pytest.mark.report("R3")
def test_waits_for_a_head_and_a_worker_that_come_later(head: Machine, worker: Machine, port: int) -> None:
    waiting = head.start(
        CHECK, f"--address=127.0.0.2:{port}", f"--expect={BOTH}", "--timeout=8", "--stable=0.1"
    )
    start_worker(worker, port)
    assert waiting.stdout is not None
    assert waiting.stdout.readline().startswith(f"no answer from the Ray head at 127.0.0.2:{port}")

    start_head(head, port)
    words, _ = waiting.communicate(timeout=10)

    assert waiting.returncode == 0, words
    assert f"nodes={BOTH}\ngpus=2\n" in words


@pytest.mark.report("R3")
def test_names_what_is_missing_and_ignores_the_dead(head: Machine, worker: Machine, port: int) -> None:
    start_head(head, port)
    member = start_worker(worker, port)
    assert check(head, port, f"--expect={BOTH}")[0] == 0
    member.kill()

    status, _, words = check(head, port, f"--expect={BOTH}", "--stable=3", timeout=4)

    assert status == 4
    assert words.splitlines()[-1].endswith("within 4 s: 1 of 2 nodes, missing worker@127.0.0.3.")
    assert check(head, port, f"--expect={ONE}")[0] == 0


def test_a_worker_that_ends_in_order_is_drained_at_once(head: Machine, worker: Machine, port: int) -> None:
    start_head(head, port)
    member = start_worker(worker, port)
    assert check(head, port, f"--expect={BOTH}")[0] == 0

    member.terminate()

    assert member.wait(5) == -15
    status = head.run(*RAY, "status", f"--address=127.0.0.2:{port}").stdout
    assert "127.0.0.3: Termination of node was expected" in status


def test_names_strangers_and_too_few_gpus(head: Machine, worker: Machine, port: int) -> None:
    start_head(head, port)
    start_worker(worker, port)
    assert check(head, port, f"--expect={BOTH}")[0] == 0

    status, _, words = check(head, port, f"--expect={ONE}", "--gpus=2", timeout=2)

    assert status == 4
    assert "not expected worker@127.0.0.3, too few GPUs head@127.0.0.2 (1 of 2)" in words


def test_a_stranger_is_drained_and_does_not_come_back(head: Machine, worker: Machine, port: int) -> None:
    start_head(head, port)
    member = start_worker(worker, port)
    assert check(head, port, f"--expect={BOTH}")[0] == 0

    # Renamed, its address is the same.
    status, out, words = check(head, port, f"--expect={ONE},spare@127.0.0.3", "--drain", "--missing-ok")

    assert (status, out) == (0, f"nodes={ONE}\ngpus=1\n"), words
    assert "not expected worker@127.0.0.3" in words
    assert check(head, port, f"--expect={ONE}", "--stable=2")[0] == 0
    assert member.poll() is None, "its container would be started again, and it would join again"


def test_a_stranger_that_is_gone_without_a_word_holds_nothing_up(
    head: Machine, worker: Machine, port: int
) -> None:
    start_head(head, port)
    member = start_worker(worker, port)
    assert check(head, port, f"--expect={BOTH}")[0] == 0
    member.kill()

    assert check(head, port, f"--expect={ONE}", "--drain")[0] == 0


def test_nobody_is_drained_unasked(head: Machine, worker: Machine, port: int) -> None:
    start_head(head, port)
    start_worker(worker, port)
    assert check(head, port, f"--expect={BOTH}")[0] == 0
    assert check(head, port, f"--expect={ONE}", timeout=2)[0] == 4
    assert check(head, port, f"--expect={BOTH}")[0] == 0


def test_a_wrong_token_is_refused(head: Machine, worker: Machine, port: int) -> None:
    start_head(head, port, **authentication("right"))
    assert check(head, port, f"--expect={ONE}", token="right")[0] == 0  # noqa: S106

    stranger = start_worker(worker, port, **authentication("wrong"))

    assert "InvalidAuthToken" in stranger.communicate(timeout=5)[0]
    assert stranger.returncode == 1
    assert "InvalidAuthToken" in check(head, port, f"--expect={ONE}", timeout=2)[2]
    assert head.run(*RAY, "status", f"--address=127.0.0.2:{port}").returncode == 1


@pytest.mark.report("R5")
def test_a_worker_leaves_when_its_head_is_another_one(head: Machine, worker: Machine, port: int) -> None:
    first = start_head(head, port)
    member = start_worker(worker, port)
    assert check(head, port, f"--expect={BOTH}")[0] == 0
    first.kill()
    first.wait()

    start_head(head, port)

    assert member.wait(8) == 1


@pytest.mark.report("R4")
def test_another_version_of_ray_cannot_join(head: Machine, worker: Machine, port: int) -> None:
    start_head(head, port)

    stranger = start_worker(worker, port, STUB_RAY_VERSION="2.52.0")

    words = stranger.communicate(timeout=8)[0]
    assert stranger.returncode == 1
    assert "2.53.0" in words
    assert "2.52.0" in words


def test_refuses_an_unknown_option_and_a_foreign_address(head: Machine, port: int) -> None:
    unknown = head.run(*RAY, "start", "--head", "--block", "--bogus=1")
    foreign = head.run(*RAY, "start", "--head", "--block", "--node-ip-address=192.0.2.99", f"--port={port}")

    assert unknown.returncode == 2
    assert "No such option: --bogus=1" in unknown.stderr
    assert foreign.returncode == 1
    assert "192.0.2.99" in foreign.stderr
