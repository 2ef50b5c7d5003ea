"""The wait for a server or a rank, with a `docker` and a `curl` that say what a test wants."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.remote import compose

DOCKER = """#!/bin/bash
printf '%s\\n' "$*" >>"$PLACE/calls"
case $1 in
  inspect)
    [[ $* == *StartedAt* ]] && date -Is || cat "$PLACE/state"
    [[ ! -e $PLACE/next ]] || mv "$PLACE/next" "$PLACE/state"
    ;;
  logs) [[ $* == *--since* ]] && cat "$PLACE/log-since" 2>/dev/null || tail -n 1 "$PLACE/log" ;;
  exec)
    [[ $* != *--drain* ]] || { echo 'Application startup' >"$PLACE/log"; touch "$PLACE/healthy"; }
    [[ $* != *'/spark/ready'* ]] || [[ -e $PLACE/healthy ]]
    ;;
esac
"""
CURL = "#!/bin/bash\n[[ -e $PLACE/healthy ]]\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, text in (("docker", DOCKER), ("curl", CURL)):
        script = tmp_path / "bin" / name
        script.write_text(text)
        script.chmod(0o755)
    (tmp_path / "state").write_text("running 0 0\n")
    (tmp_path / "log").write_text("loading\n")
    return tmp_path


def wait(place: Path, *, health: str = "", ray: str = "") -> subprocess.CompletedProcess[str]:
    inputs = {
        "NODE": "worker",
        "CONTAINER": "vllm",
        "HEALTH": health,
        "WAIT": "3",
        "RAY": ray,
        "ADDRESS": "192.168.200.12:6379" if ray else "",
        "EXPECT": "head@192.168.200.12" if ray else "",
    }
    return subprocess.run(
        ["bash", "-s"],
        input=compose("ready.sh", inputs),
        env={"PATH": f"{place}/bin:/usr/bin:/bin", "PLACE": str(place)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.mark.parametrize("health", ["http://127.0.0.1:8000/health", ""])
def test_a_server_and_a_rank_that_answer_are_ready(place: Path, health: str) -> None:
    assert wait(place, health=health).returncode == 1, "it is not ready yet"
    (place / "healthy").touch()
    done = wait(place, health=health)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("load_seconds=")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[36m(RayWorkerProc pid=870)\x1b[0m Loading weights took 3 s", "\nLoading weights took 3 s\n"),
        ("shard 1 of 2\rshard 2 of 2", "\nshard 2 of 2\n"),
        ("(EngineCore pid=1) WARNING 12-03 no Triton", "\nstill loading\n"),
        ("\x1b[36m(RayWorkerProc pid=870)\x1b[0m ", "\nstill loading\n"),
    ],
)
def test_what_it_says_while_it_loads_is_fit_to_read(place: Path, line: str, shown: str) -> None:
    (place / "log").write_text(f"{line}\n")
    assert shown in f"\n{wait(place).stderr}"


def test_a_server_that_was_started_again_before_may_serve(place: Path) -> None:
    (place / "state").write_text("running 0 1\n")
    (place / "healthy").touch()
    done = wait(place, health="http://127.0.0.1:8000/health")
    assert done.returncode == 0, done.stderr


def test_a_server_that_is_started_again_has_failed(place: Path) -> None:
    (place / "next").write_text("running 0 1\n")
    (place / "healthy").touch()
    done = wait(place, health="http://127.0.0.1:8000/health")
    assert done.returncode == 1
    assert "started again by Docker" in done.stderr


@pytest.mark.parametrize("word", ["spark-vllm: rank ended with status 1", "spark-vllm: lost rank 0 (head)"])
def test_a_rank_fails_by_what_it_says_from_now_on(place: Path, word: str) -> None:
    # It may have been started again when the server before this one went away.
    (place / "state").write_text("running 0 1\n")
    (place / "healthy").touch()
    assert wait(place).returncode == 0
    (place / "log-since").write_text(f"{word}\n")
    assert wait(place).returncode == 1


def test_a_container_that_is_down_ends_the_wait_at_once(place: Path) -> None:
    (place / "state").write_text("exited 0 5\n")
    done = wait(place)
    assert done.returncode == 1
    assert "worker: vllm is exited (exit status 0)" in done.stderr


def test_a_node_that_came_back_although_it_left_is_drained_while_the_server_waits_for_it(place: Path) -> None:
    (place / "log").write_text("2 of 2 nodes, not expected worker2@192.168.200.14\n")
    done = wait(place, health="http://127.0.0.1:8000/health", ray="ray-head")
    assert done.returncode == 0, done.stderr
    calls = (place / "calls").read_text()
    assert "exec ray-head python3 /spark/ray_nodes.py" in calls
    assert "--expect head@192.168.200.12 --drain --missing-ok" in calls
