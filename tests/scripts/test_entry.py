"""The entry script of every container: bounded recovery, secrets from files, and clean ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from components.remote import text


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """The script with its folder and /tmp moved out of the way."""
    (tmp_path / "tmp").mkdir()
    moved = text("entry.sh").replace("/spark/", f"{tmp_path}/").replace("find /tmp", f"find {tmp_path}/tmp")  # noqa: S108 - the path is replaced
    script = tmp_path / "entry.sh"
    script.write_text(moved)
    return script


def argv(entry: Path, *command: str, role: str = "serve") -> list[str]:
    return ["bash", str(entry), role, *command]


def environment(**more: str) -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"], "SPARK_ATTEMPTS": "2", "SPARK_HEALTHY_AFTER": "20", **more}


def start(entry: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(entry, *command),
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.mark.report("R8")
def test_every_end_counts_as_a_failure_until_it_gives_up_with_status_0(entry: Path) -> None:
    first, second, third = (start(entry, "true"), start(entry, "sh", "-c", "exit 7"), start(entry, "true"))
    assert (first.returncode, second.returncode, third.returncode) == (1, 7, 0)
    assert "start 1 of 2" in first.stderr
    assert "gave up: 2 starts in a row have failed" in third.stderr
    assert "pulumi up --refresh" in third.stderr


def test_a_new_boot_is_a_new_chance(entry: Path) -> None:
    (entry.parent / "attempts").write_text("another-boot-1 2\n")
    assert "start 1 of 2" in start(entry, "true").stderr


def test_a_long_healthy_run_forgets_what_failed_before(entry: Path) -> None:
    start(entry, "true")
    start(entry, "sleep", "2", SPARK_HEALTHY_AFTER="1")
    assert "start 1 of 2" in start(entry, "true").stderr


def test_a_stop_reaches_the_command_and_is_no_clean_end(entry: Path) -> None:
    script = "trap 'echo stopped; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    with subprocess.Popen(
        argv(entry, "bash", "-c", script), env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopped\n"
        assert process.wait(timeout=10) == 128 + signal.SIGTERM
    assert "start 1 of 2" in start(entry, "true").stderr, "what was stopped has not failed"


def test_a_stop_while_the_command_is_being_started_reaches_it_too(entry: Path) -> None:
    entry.write_text(entry.read_text().replace("child=$!\n", "kill -TERM $$\nchild=$!\n", 1))
    began = time.monotonic()
    done = start(entry, "sleep", "15")
    assert done.returncode == 128 + signal.SIGTERM
    assert time.monotonic() - began < 10, "the command was left behind"


def test_the_key_comes_from_its_file_byte_for_byte(entry: Path) -> None:
    key = "a b$HOME`id`'\"\\x"
    (entry.parent / "api-key").write_text(key)
    assert start(entry, "sh", "-c", 'printf %s "$VLLM_API_KEY"').stdout == key
    (entry.parent / "api-key").unlink()
    assert start(entry, "sh", "-c", "printf %s ${VLLM_API_KEY-unset}").stdout == "unset"


def test_arguments_arrive_byte_for_byte(entry: Path) -> None:
    nasty = ["", "-x", "a b", "$HOME", "`id`", "'\"", "{x}\n;", "ü"]
    out = start(entry, "python3", "-c", "import sys; print(sys.argv[1:])", *nasty)
    assert out.stdout == f"{nasty}\n"


def test_waiting_for_a_peer_is_no_attempt(entry: Path) -> None:
    with subprocess.Popen(
        argv(entry, "true"), env=environment(SPARK_WAIT_FOR="127.0.0.1:1"), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "waiting for 127.0.0.1:1" in process.stderr.readline()
        time.sleep(1)
        assert not (entry.parent / "attempts").exists()
        process.kill()


def test_a_stop_ends_what_only_waits_at_once(entry: Path) -> None:
    (entry.parent / "ray_nodes.py").write_text("import time; time.sleep(6)")
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        for waiting in (
            {"SPARK_WAIT_FOR": "127.0.0.1:1"},
            {"SPARK_RAY_NODES": "head@127.0.0.1", "RAY_ADDRESS": address},
        ):
            with subprocess.Popen(argv(entry, "true"), env=environment(**waiting)) as process:
                time.sleep(0.7)
                process.send_signal(signal.SIGTERM)
                try:
                    assert process.wait(timeout=3) == 128 + signal.SIGTERM
                finally:
                    process.kill()


LIFELINE = """
import pathlib, sys, time
pathlib.Path(sys.argv[0]).with_name("together").touch()
time.sleep({})
sys.exit("spark-vllm: lost rank 1 (worker)")
"""


def test_a_rank_ends_when_another_is_lost_even_if_it_will_not(entry: Path) -> None:
    entry.write_text(entry.read_text().replace("patience=20", "patience=1"))
    (entry.parent / "ranks.py").write_text(LIFELINE.format(0.5))
    stubborn = "trap 'echo told' TERM; while :; do sleep 0.1; done"
    done = start(entry, "bash", "-c", stubborn, SPARK_RANKS="head,worker")
    assert done.returncode not in (0, 143)
    assert "told" in done.stdout
    assert "lost rank 1 (worker)" in done.stderr
    assert "cannot go on without the others" in done.stderr
    assert "ended with status" not in done.stderr, "ready.sh takes that for a failure of this rank's own"


def test_a_rank_that_ends_by_itself_takes_its_lifeline_with_it(entry: Path) -> None:
    (entry.parent / "ranks.py").write_text(LIFELINE.format(30))
    done = start(entry, "sh", "-c", "exit 3", SPARK_RANKS="head,worker")
    assert done.returncode == 3
    assert "serve ended with status 3" in done.stderr


def test_a_lifeline_that_cannot_be_held_is_no_attempt(entry: Path) -> None:
    (entry.parent / "ranks.py").write_text("import sys; sys.exit('spark-vllm: cannot listen')")
    assert start(entry, "true", SPARK_RANKS="head,worker").returncode == 75
    assert not (entry.parent / "attempts").exists()


def test_leftovers_go_but_a_rank_spares_the_ray_that_goes_last(entry: Path) -> None:
    for role, left in (("rank", ["ray"]), ("ray", [])):
        place = entry.parent / "tmp"
        (place / "ray").mkdir(exist_ok=True)
        (place / "old").mkdir()
        subprocess.run(argv(entry, "true", role=role), env=environment(), check=False, timeout=20)
        assert sorted(path.name for path in place.iterdir()) == left


def test_only_the_sockets_of_a_dead_server_are_cleared(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = entry.parent / "tmp"
    stale = place / "12345678-1234-1234-1234-123456789abc"
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(place)  # a socket's path is short
        bound.bind(stale.name)
    (place / "ray").mkdir()
    start(entry, "true")
    assert sorted(path.name for path in place.iterdir()) == ["ray"]
