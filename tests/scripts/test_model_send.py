"""The model on a worker: what it lacks of the head's, resumed, compared, repaired."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from lab.images import fake_model
from tests.scripts.nodes import Nodes

SHARDS = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
FILES = {**fake_model(rows=16384, seed=1), "tokenizer/a tokenizer.json": b"{}\n", "empty.txt": b""}
REVISION = "lab--tiny/" + "1" * 40


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path).make()


def put(directory: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return directory


@pytest.fixture
def revision(nodes: Nodes) -> Path:
    """A revision's folder on the head, complete."""
    directory = put(nodes.head / REVISION, FILES)
    lines = [f"{hashlib.sha256(data).hexdigest()} {len(data)} {name}" for name, data in FILES.items()]
    (directory / ".complete").write_text("\n".join(sorted(lines)) + "\n")
    return directory


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def sent(nodes: Nodes, revision: Path) -> subprocess.CompletedProcess[str]:
    run = nodes.send(revision, revision / ".complete")
    assert run.returncode == 0, run.stderr
    return run


def bytes_put(nodes: Nodes) -> int:
    return int((nodes.place / "put.bytes").read_text())


def test_a_worker_gets_the_revision_and_its_mark(nodes: Nodes, revision: Path) -> None:
    run = sent(nodes, revision)
    assert content(nodes.worker / REVISION) == content(revision)
    assert "files=7\n" in run.stdout
    (nodes.place / "put.bytes").unlink()
    assert "worker: the model is there" in sent(nodes, revision).stderr
    assert not (nodes.place / "put.bytes").exists()


def test_a_cut_copy_goes_on_where_it_ended(nodes: Nodes, revision: Path) -> None:
    (nodes.place / "cut").write_text("3000000")
    run = nodes.send(revision, revision / ".complete")
    assert run.returncode != 0
    assert "did not arrive whole" in run.stderr
    assert not (nodes.worker / REVISION / ".complete").exists()
    (nodes.place / "cut").unlink()
    sent(nodes, revision)
    assert content(nodes.worker / REVISION) == content(revision)
    total = sum(map(len, FILES.values()))
    assert total - 3_000_000 <= bytes_put(nodes) < total - 3_000_000 + 2000


@pytest.mark.parametrize("cut", [0, 100])
def test_a_list_that_was_cut_removes_nothing(nodes: Nodes, revision: Path, cut: int) -> None:
    sent(nodes, revision)
    (nodes.place / "cut-list").write_text(str(cut))
    run = nodes.send(revision, revision / ".complete")
    assert run.returncode != 0
    assert "list of the model's files was cut" in run.stderr
    assert content(nodes.worker / REVISION) == content(revision)


@pytest.mark.parametrize("harm", ["truncated", "missing", "other"])
@pytest.mark.report("H2")
def test_a_bad_shard_is_sent_alone(nodes: Nodes, revision: Path, harm: str) -> None:
    sent(nodes, revision)
    there = nodes.worker / REVISION
    kept = {name: (there / name).stat().st_ino for name in FILES if name != SHARDS[0]}
    data = FILES[SHARDS[0]]
    (there / SHARDS[0]).unlink()
    if harm != "missing":
        (there / SHARDS[0]).write_bytes(data[:-1] if harm == "truncated" else b"\0" + data[1:])
    sent(nodes, revision)
    assert content(there) == content(revision)
    assert len(data) < bytes_put(nodes) < len(data) + 200
    assert {name: (there / name).stat().st_ino for name in kept} == kept


def test_an_extra_shard_of_a_revision_goes(nodes: Nodes, revision: Path) -> None:
    sent(nodes, revision)
    (nodes.worker / REVISION / "model-00004-of-00003.safetensors").write_bytes(b"stray")
    sent(nodes, revision)
    assert content(nodes.worker / REVISION) == content(revision)


def test_nothing_is_changed_under_a_server(nodes: Nodes, revision: Path) -> None:
    sent(nodes, revision)
    nodes.serve(nodes.head, REVISION)
    sent(nodes, revision)
    shard = nodes.worker / REVISION / SHARDS[0]
    shard.write_bytes(b"broken")
    run = nodes.send(revision, revision / ".complete")
    assert run.returncode != 0
    assert f"worker: {SHARDS[0]} in" in run.stderr
    assert "docker stop vllm" in run.stderr
    assert shard.read_bytes() == b"broken"


def test_a_server_of_the_worker_itself_counts_too(nodes: Nodes, revision: Path) -> None:
    nodes.serve(nodes.worker / REVISION, "")
    run = nodes.send(revision, revision / ".complete")
    assert run.returncode != 0
    assert "vllm serves from there" in run.stderr


def test_what_does_not_fit_on_the_worker_is_not_sent(nodes: Nodes, revision: Path) -> None:
    run = nodes.send(revision, revision / ".complete", RESERVE_MIB=str(10**9))
    assert run.returncode != 0
    assert "worker: " in run.stderr
    assert "MB free" in run.stderr
    assert content(nodes.worker) == {}


def test_a_directory_of_the_head_is_copied_and_never_changed(nodes: Nodes) -> None:
    directory = put(nodes.head / "mine", FILES)
    put(directory, {".git/config": b"no part of it"})
    before = content(directory)
    manifest = nodes.place / "head" / ".cache" / "manifest"
    run = nodes.check(directory, manifest)
    assert run.returncode == 0, run.stderr
    put(nodes.worker / "mine", {"notes.txt": b"the worker's own", SHARDS[1]: FILES[SHARDS[1]][:-1]})
    run = nodes.send(directory, manifest)
    assert run.returncode == 0, run.stderr
    assert content(nodes.worker / "mine") == {**FILES, "notes.txt": b"the worker's own"}
    assert content(directory) == before


def test_a_stray_shard_in_a_workers_directory_is_named_and_left(nodes: Nodes) -> None:
    directory = put(nodes.head / "mine", FILES)
    stray = nodes.worker / "mine" / "model-00004-of-00003.safetensors"
    put(nodes.worker / "mine", {stray.name: b"stray"})
    manifest = nodes.place / "manifest"
    nodes.check(directory, manifest)
    run = nodes.send(directory, manifest)
    assert run.returncode != 0
    assert stray.name in run.stderr
    assert stray.exists()


def test_a_directory_that_is_whole_says_how_much_it_holds(nodes: Nodes) -> None:
    run = nodes.check(put(nodes.head / "mine", FILES))
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"files=7\nbytes={sum(map(len, FILES.values()))}\n"


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({SHARDS[1]: FILES[SHARDS[1]][:-1]}, "header promises"),
        ({SHARDS[1]: FILES[SHARDS[1]] + b"\0"}, "header promises"),
        ({SHARDS[1]: bytes(5000)}, "header promises 8:"),
        ({SHARDS[1]: b""}, "is missing or empty, and the index names it"),
        ({"config.json": b""}, "config.json is missing or empty"),
    ],
    ids=["truncated", "too long", "zeros", "empty shard", "no configuration"],
)
def test_a_directory_that_is_not_whole_is_refused(nodes: Nodes, harm: dict[str, bytes], words: str) -> None:
    run = nodes.check(put(nodes.head / "mine", {**FILES, **harm}))
    assert run.returncode != 0
    assert words in run.stderr


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ("model-put ../elsewhere", b""),
        ("model-put a/../../elsewhere", b""),
        ("model-put a;id", b""),
        ("model-put a", b"0 " + b"a" * 64 + b" 3 ../../elsewhere\nxyz"),
        ("model-put a", b"0 " + b"../../../../../../../../../../../../../../x" + b" 3 name\nxyz"),
        ("model-remove a", b""),
    ],
)
def test_the_receiver_writes_nowhere_else(nodes: Nodes, words: str, data: bytes) -> None:
    nodes.receiver(nodes.worker)
    run = subprocess.run(
        ["bash", str(nodes.place / "receiver")],
        input=data,
        env={**nodes.environment(), "SSH_ORIGINAL_COMMAND": words},
        capture_output=True,
        check=False,
    )
    assert run.returncode != 0
    assert not list(nodes.place.rglob("elsewhere"))
    assert not list(nodes.place.rglob("name"))
