"""What the lab promises when it is hit from outside, and when it goes: on an engine of the tests' own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.build import base_image, build_image
from lab.instance import Lab
from lab.nodes import node_image
from lab.outer import Outer
from lab.record import Folder, default_name
from lab.registry import registry_image
from lab.shell import LabError
from tests.lab.host import host_network

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def spare(lab: Lab) -> Iterator[Outer]:
    """An outer engine that may be killed, with the images of the other one and nothing of a run before."""
    images = [base_image(lab.outer), node_image(lab.outer), registry_image(lab.outer)]
    outer = Outer(f"{default_name()}-spare")
    outer.purge()
    outer.start()
    with subprocess.Popen(lab.outer.command("save", *images), stdout=subprocess.PIPE) as save:
        subprocess.run(outer.command("load", "--quiet"), stdin=save.stdout, check=True)
    yield outer
    for name in ("one", "two"):
        Lab(name, outer).down()
    outer.purge()
    assert not outer.cache.exists()


@pytest.fixture
def one(spare: Outer) -> Lab:
    instance = Lab("one", spare)
    instance.up()
    return instance


def processes(outer: Outer) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_text()
        except OSError:
            continue
        if f"{outer.run_dir}/" in command:
            found.append(command.replace("\0", " "))
    return found


def outer_pid(outer: Outer, command: str) -> int:
    children = Path(f"/proc/{outer.pid()}/task/{outer.pid()}/children").read_text().split()
    return next(int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == command)


@pytest.mark.parametrize("victim", ["dockerd", "slirp4netns", "first process"])
def test_up_repairs_a_killed_engine(one: Lab, victim: str) -> None:
    one.root("worker", "touch", "/home/aurora/kept")
    pid = one.outer.pid() if victim == "first process" else outer_pid(one.outer, victim)
    assert pid is not None

    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 30
    while one.outer.pid() is not None and time.monotonic() < end:
        time.sleep(0.1)
    one.up()

    assert one.ssh("worker", "hostname; ls /home/aurora").split() == ["worker", "kept"]
    assert one.root("head", "curl", "-sS", f"http://{one.status()['registry']}/v2/") == "{}"


def test_up_repairs_after_the_machine_restarted(one: Lab) -> None:
    ports = one.record.ssh_port, one.record.api_port
    stale = one.outer.run_dir / "init.pid"
    one.outer.stop()
    stale.parent.mkdir()
    stale.write_text(str(os.getpid()))

    one.up()

    assert (one.record.ssh_port, one.record.api_port) == ports
    assert one.ssh("worker", "hostname") == "worker"


def test_up_makes_a_half_made_node_anew(one: Lab) -> None:
    labels = ("--label=spark-lab.instance=one", "--label=spark-lab.node=worker")
    one.outer.docker("rm", "--force", "one-worker")
    one.outer.docker("create", "--name=one-worker", *labels, node_image(one.outer))

    one.up()

    assert one.ssh("worker", "hostname") == "worker"


def test_two_instances_do_not_disturb_each_other(one: Lab) -> None:
    two = Lab("two", one.outer)
    two.up(workers=3, worker_interfaces=("enp1s0f1np1", "enP2p1s0f1np1"))

    assert [two.ssh(node, "hostname") for node in ("worker", "worker2", "worker3")] == [
        "worker", "worker2", "worker3",
    ]  # fmt: skip
    assert "192.168.200.15/24" in two.root("worker3", "ip", "address", "show", "enp1s0f1np1")
    two.down()

    assert one.ssh("worker", "hostname") == "worker"
    assert one.outer.docker("ps", "--all", "--quiet", "--filter=label=spark-lab.instance=two") == ""
    assert one.outer.docker("volume", "ls", "--quiet", "--filter=label=spark-lab.instance=two") == ""
    assert not [command for command in processes(one.outer) if "/two/" in command]


def test_a_node_may_begin_with_what_another_has_pulled(one: Lab) -> None:
    image = base_image(one.outer)
    one.load("worker", image)
    older = one.outer.cache / "disks" / "seen-1"
    older.mkdir(parents=True)
    one.keep_disk("worker", "seen:2")
    assert [disk.name for disk in older.parent.glob("seen-*")] == ["seen-2"]
    two = Lab("two", one.outer)
    for _ in range(2):
        two.up(disk="seen:2")
        assert two.docker("head", "run", "--rm", "--network=host", image, "hostname") == "head"
        two.docker("worker", "image", "rm", "--force", image)
        two.down()

    assert one.docker("worker", "run", "--rm", "--network=host", image, "hostname") == "worker"


def test_up_removes_the_instance_of_a_clone_that_is_gone(one: Lab) -> None:
    two = Lab("two", one.outer)
    two.up()
    path = Folder(one.outer, "two").path / "instance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "clone": "/gone"}))

    one.up()

    with pytest.raises(LabError, match="no instance two"):
        two.status()
    assert "two-head" not in one.outer.docker("ps", "--all")


def test_instance_of_another_clone_is_refused(one: Lab, tmp_path: Path) -> None:
    path = Folder(one.outer, "one").path / "instance.json"
    mine = path.read_text()
    path.write_text(json.dumps({**json.loads(mine), "clone": str(tmp_path)}))

    with pytest.raises(LabError, match="choose another name"):
        one.up()

    path.write_text(mine)


def test_image_is_built_again_only_when_an_input_changes(spare: Outer, tmp_path: Path) -> None:
    spare.start()
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY word /\n")
    (tmp_path / "word").write_text("one")
    first = build_image(spare, tmp_path, "spark-lab/test")
    made = spare.docker("image", "inspect", "--format={{.Metadata.LastTagTime}}", first)

    again = build_image(spare, tmp_path, "spark-lab/test")
    assert again == first
    assert spare.docker("image", "inspect", "--format={{.Metadata.LastTagTime}}", first) == made

    (tmp_path / "word").write_text("two")
    assert build_image(spare, tmp_path, "spark-lab/test") != first
    assert base_image(spare) in spare.docker("images", "--format={{.Repository}}:{{.Tag}}")


def test_last_instance_takes_everything_with_it(one: Lab, host_before: dict[str, str]) -> None:
    folder = one.folder.path

    one.down()

    assert not processes(one.outer)
    assert not one.outer.run_dir.exists()
    assert not folder.exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{one.outer.name}"))
    assert host_network() == host_before


@pytest.mark.parametrize("name", ["../x", "Upper", "-x", "x" * 41])
def test_name_that_is_no_folder_or_container_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="no name for a lab"):
        Lab(name)


def test_default_name_is_the_clones_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LAB", raising=False)
    assert default_name().startswith("lab-")

    monkeypatch.setenv("SPARK_LAB", "mine")
    assert default_name() == "mine"
