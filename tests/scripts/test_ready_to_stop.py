"""The last look at a node before a stop: its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote import on_a_node

MEMINFO = "MemTotal:       125829120 kB\nMemFree:         1048576 kB\nMemAvailable:   {available} kB\n"


def look(  # noqa: PLR0913 - what a node may look like
    scratch: Path,
    *,
    available_gib: int = 100,
    running: bool = False,
    sudo: bool = True,
    role: str = "worker",
    label: str = "worker",
    listening: bool = False,
    arguments: str = "",
    name: str = "ray-worker",
    identity: str = "",
) -> tuple[int, str, str]:
    """Run the script as a node does, with programs that only say what they are told."""
    container, shown_name = ("0123abcd", name) if running else ("", "")
    shown = (
        f'case "$*" in *.Names*) echo {shown_name} ;; *--format*) echo {label} ;; *) echo {container} ;; esac'
    )
    asked = f"case \"$*\" in *.Args*) echo '{arguments}'; exit 0 ;; esac"
    (scratch / "meminfo").write_text(MEMINFO.format(available=available_gib * 1024 * 1024))
    inputs = {
        "NODE": "worker", "ROLE": role, "TAG": "spark-vllm/x:1", "NAMES": "ray-worker",
        "PORTS": "6379 ray.port", "PROJECT": "spark-vllm", "STACK": "test", "SHARE": "0.8", "GENERATION": "1",
        "IDENTITY": identity,
        "MEMINFO": str(scratch / "meminfo"),
    }  # fmt: skip
    return on_a_node(
        "ready-to-stop.sh",
        inputs,
        scratch,
        libraries=["machine.sh"],
        docker=f'{asked}; [ "$1" != ps ] || {shown}; [ "$1 $2" != "inspect --format" ]',
        sudo=f'echo "$*" >>"{scratch}/sudo.log"; exit {0 if sudo else 1}',
        sync=":",
        ss="echo LISTEN 0 128 0.0.0.0:6379" if listening else ":",
    )


@pytest.mark.report("M3")
def test_enough_memory_passes_and_the_page_cache_is_dropped(tmp_path: Path) -> None:
    status, out, _ = look(tmp_path, available_gib=100)
    assert (status, out.split()) == (0, ["page_cache=dropped", "stop=ok"])
    assert (tmp_path / "sudo.log").read_text() == "-n bash -c echo 3 >/proc/sys/vm/drop_caches\n"


def test_without_sudo_the_page_cache_stays(tmp_path: Path) -> None:
    status, out, _ = look(tmp_path, available_gib=100, sudo=False)
    assert (status, out.split()) == (0, ["page_cache=kept", "stop=ok"])


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.report("M3")
def test_too_little_memory_is_refused_unless_ours_hold_it(tmp_path: Path, *, running: bool) -> None:
    status, _, words = look(tmp_path, available_gib=90, running=running)
    assert status == (0 if running else 1)
    assert running or "vllm.gpuMemoryUtilization 0.8 takes 98304 MiB" in words


@pytest.mark.parametrize(
    ("role", "label", "status"), [("head", "old", 1), ("head", "worker", 0), ("worker", "old", 0)]
)
def test_a_head_keeps_its_name_and_a_worker_need_not(
    tmp_path: Path, role: str, label: str, status: int
) -> None:
    found, _, words = look(tmp_path, running=True, role=role, label=label)
    assert found == status, words
    assert ("keep the name old" in words) == bool(status)


@pytest.mark.parametrize(
    ("running", "arguments", "status"),
    [
        pytest.param(False, "", 1, id="a stranger's, nothing of ours runs"),
        pytest.param(True, '["start","--port=6380"]', 1, id="a stranger's, beside ours"),
        pytest.param(True, '["start","--port=16379"]', 1, id="a longer number is another"),
        pytest.param(True, '["start","--port=6379"]', 0, id="ours"),
        pytest.param(True, '["SPARK_LIFELINE=192.168.200.12:6379"]', 0, id="ours, by its environment"),
    ],
)
@pytest.mark.report("R9")
def test_a_port_that_a_stranger_holds_is_refused_also_beside_ours(
    tmp_path: Path, running: bool, arguments: str, status: int
) -> None:
    found, _, words = look(tmp_path, running=running, listening=True, arguments=arguments)
    assert found == status, words
    assert ("port 6379 (ray.port) is taken by another program" in words) == bool(status)


def test_what_only_checks_or_fetches_holds_no_memory_for_us(tmp_path: Path) -> None:
    status, _, words = look(tmp_path, available_gib=10, running=True, name="spark-vllm-test-check-engine")
    assert status == 1
    assert "vllm.gpuMemoryUtilization" in words


@pytest.mark.report("R4", "D7")
def test_an_image_that_is_another_than_the_heads_is_refused(tmp_path: Path) -> None:
    status, _, words = look(tmp_path, identity="0123456789ab")
    assert status == 1
    assert "holds something else than on the head" in words
