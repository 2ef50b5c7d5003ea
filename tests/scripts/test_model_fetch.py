"""A revision of the hub on the head: the real client against the lab's hub; resumed, verified, repaired."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.remote import compose
from lab import hub_server
from lab.hub import Hub, Request
from lab.images import fake_model
from tests.scripts.nodes import Nodes

TOKEN = "hf_right"  # noqa: S105 - of no machine
SHARDS = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
FILES = {**fake_model(rows=500, seed=1), "tokenizer/tokenizer.json": b"{}\n"}
LARGE = fake_model(rows=196_608, seed=3)
CHUNK = 10 * 1024 * 1024
OTHERS = {".gitattributes": b"* text\n", "original/model.safetensors": b"once more"}


def manifest_line(name: str, data: bytes) -> str:
    blob = hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False)
    digest = hashlib.sha256(data) if name in SHARDS else blob
    return f"{digest.hexdigest()} {len(data)} {name}\n"


MANIFEST = "".join(sorted(manifest_line(name, data) for name, data in FILES.items()))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, str]]:
    root = tmp_path_factory.mktemp("hub")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, hub_server.__file__, str(root), "127.0.0.1", str(port)]
    ) as process:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield Hub(root), f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.fixture
def hub(server: tuple[Hub, str]) -> Hub:
    return server[0]


@pytest.fixture
def nodes(server: tuple[Hub, str], tmp_path: Path) -> Nodes:
    return Nodes(tmp_path, server[1]).make()


@pytest.fixture
def repo(hub: Hub, tmp_path: Path) -> tuple[str, str]:
    """A repository of this test alone, and its commit."""
    name = f"lab/{tmp_path.name}"
    return name, hub.publish(name, {**FILES, **OTHERS})


@pytest.fixture
def large(hub: Hub, tmp_path: Path) -> tuple[str, str]:
    """One with shards of 25 MB: the client writes 10 MB at a time."""
    name = f"lab/{tmp_path.name}"
    return name, hub.publish(name, LARGE)


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts)
    }


def complete(nodes: Nodes, repo: tuple[str, str]) -> Path:
    """The repository on the head, as a fetch leaves it."""
    directory = nodes.directory(*repo)
    for name, data in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    (directory / ".complete").write_text(MANIFEST)
    return directory


def fetched(nodes: Nodes, repo: tuple[str, str]) -> Path:
    """The repository, on the head."""
    run = nodes.fetch(*repo)
    assert run.returncode == 0, run.stderr
    return nodes.directory(*repo)


@pytest.mark.report("H1")
def test_a_revision_is_fetched_once_and_marked_last(nodes: Nodes, hub: Hub, repo: tuple[str, str]) -> None:
    run = nodes.fetch(*repo)
    assert run.returncode == 0, run.stderr
    directory = nodes.directory(*repo)
    assert content(directory) == FILES
    assert "files=6\n" in run.stdout
    assert f"bytes={sum(map(len, FILES.values()))}\n" in run.stdout
    assert sorted(each.path for each in hub.requests(repo[0])) == sorted(FILES)
    assert (directory / ".complete").read_text() == MANIFEST
    assert not (directory / ".incoming").exists()


def test_what_is_complete_asks_the_hub_nothing(nodes: Nodes, repo: tuple[str, str]) -> None:
    complete(nodes, repo)
    run = nodes.fetch(*repo, ENDPOINT="http://127.0.0.1:9")
    assert run.returncode == 0, run.stderr
    assert not (nodes.place / "docker.log").exists()


def test_a_cut_connection_goes_on_where_it_ended(nodes: Nodes, hub: Hub, large: tuple[str, str]) -> None:
    hub.configure(large[0], cut=[SHARDS[1]])
    assert content(fetched(nodes, large)) == LARGE
    size = len(LARGE[SHARDS[1]])
    assert [each for each in hub.requests(large[0]) if each.path == SHARDS[1]] == [
        Request(SHARDS[1], 0, size // 2),
        Request(SHARDS[1], CHUNK, size - CHUNK),
    ]


def test_a_killed_fetch_goes_on_where_it_ended(nodes: Nodes, hub: Hub, large: tuple[str, str]) -> None:
    hub.configure(large[0], bytes_per_second=5_000_000)
    script, libraries, inputs = nodes.fetch_command(*large)
    incoming = nodes.directory(*large) / ".incoming"
    with subprocess.Popen(
        ["bash", "-s"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=nodes.environment(),
        start_new_session=True,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(compose(script, inputs, libraries))
        process.stdin.close()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if sum(path.stat().st_size > 0 for path in incoming.rglob("*.safetensors")) == len(SHARDS):
                break
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (nodes.directory(*large) / ".complete").exists()
    time.sleep(0.3)
    hub.configure(large[0], bytes_per_second=0)
    hub.forget(large[0])
    assert content(fetched(nodes, large)) == LARGE
    resumed = [each for each in hub.requests(large[0]) if each.path in SHARDS]
    assert sorted(each.path for each in resumed) == SHARDS
    assert all(each.start > 0 for each in resumed), resumed


@pytest.mark.parametrize("harm", ["truncated", "missing", "other"])
@pytest.mark.report("H2")
def test_a_bad_shard_is_fetched_alone(nodes: Nodes, hub: Hub, repo: tuple[str, str], harm: str) -> None:
    directory = complete(nodes, repo)
    shard = directory / SHARDS[1]
    kept = {path: (directory / path).stat().st_ino for path in FILES if path != SHARDS[1]}
    if harm == "missing":
        shard.unlink()
    else:
        data = shard.read_bytes()
        shard.write_bytes(data[:-1] if harm == "truncated" else data[:-1] + bytes([data[-1] ^ 1]))
    hub.forget(repo[0])
    assert content(fetched(nodes, repo)) == FILES
    assert [each.path for each in hub.requests(repo[0])] == [SHARDS[1]]
    assert {path: (directory / path).stat().st_ino for path in kept} == kept


def test_what_the_revision_does_not_have_is_removed(nodes: Nodes, hub: Hub, repo: tuple[str, str]) -> None:
    directory = complete(nodes, repo)
    (directory / "model-00004-of-00003.safetensors").write_bytes(b"stray")
    (directory / ".cache").mkdir()
    (directory / ".cache" / "other").write_bytes(b"of another program")
    hub.forget(repo[0])
    assert content(fetched(nodes, repo)) == FILES
    assert (directory / ".cache" / "other").exists()
    assert hub.requests(repo[0]) == []


def test_files_that_are_there_already_are_adopted(nodes: Nodes, hub: Hub, repo: tuple[str, str]) -> None:
    directory = nodes.directory(*repo)
    for name, data in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    fetched(nodes, repo)
    assert hub.requests(repo[0]) == []
    assert (directory / ".complete").exists()


def test_nothing_is_changed_under_a_server(nodes: Nodes, hub: Hub, repo: tuple[str, str]) -> None:
    directory = complete(nodes, repo)
    nodes.serve(nodes.head, f"{repo[0].replace('/', '--')}/{repo[1]}")
    assert nodes.fetch(*repo).returncode == 0
    (directory / SHARDS[1]).write_bytes(b"broken")
    (directory / "stray").write_bytes(b"stray")
    hub.forget(repo[0])
    run = nodes.fetch(*repo)
    assert run.returncode != 0
    assert f"head: {SHARDS[1]}" in run.stderr
    assert "docker stop vllm" in run.stderr
    assert (directory / SHARDS[1]).read_bytes() == b"broken"
    assert (directory / "stray").exists()
    assert hub.requests(repo[0]) == []


def test_another_revision_arrives_beside_the_one_that_is_served(
    nodes: Nodes, hub: Hub, repo: tuple[str, str]
) -> None:
    complete(nodes, repo)
    nodes.serve(nodes.head, f"{repo[0].replace('/', '--')}/{repo[1]}")
    second = hub.publish(repo[0], fake_model(seed=2))
    assert content(fetched(nodes, (repo[0], second))) == fake_model(seed=2)
    assert content(nodes.directory(*repo)) == FILES


def test_what_does_not_fit_is_refused_before_it_is_fetched(
    nodes: Nodes, hub: Hub, repo: tuple[str, str]
) -> None:
    run = nodes.fetch(*repo, RESERVE_MIB=str(10**9))
    assert run.returncode != 0
    assert "head: " in run.stderr
    assert "MB free" in run.stderr
    assert hub.requests(repo[0]) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"TOKEN": "hf_wrong"}, "refuses the token"),
        ({"TOKEN": ""}, "or only for others"),
        ({"TOKEN": TOKEN, "REPO": "lab/nobody"}, "or only for others"),
        ({"TOKEN": TOKEN, "REVISION": "0" * 40}, "has no revision 0000000"),
    ],
    ids=["wrong token", "no token", "unknown repository", "unknown revision"],
)
def test_a_refusal_of_the_hub_is_one_sentence(
    nodes: Nodes, hub: Hub, repo: tuple[str, str], changes: dict[str, str], words: str
) -> None:
    hub.configure(repo[0], token=TOKEN)
    run = nodes.fetch(*repo, **changes)
    assert run.returncode != 0
    assert words in run.stderr
    assert "Traceback" not in run.stderr


def test_a_gated_repository_says_where_to_ask(nodes: Nodes, hub: Hub, repo: tuple[str, str]) -> None:
    hub.configure(repo[0], gated=True)
    run = nodes.fetch(*repo)
    assert run.returncode != 0
    assert f"ask for access at {nodes.endpoint}/{repo[0]}" in run.stderr


def test_the_token_stands_on_no_command_line(nodes: Nodes, hub: Hub, repo: tuple[str, str]) -> None:
    hub.configure(repo[0], token=TOKEN)
    assert nodes.fetch(*repo, TOKEN=TOKEN).returncode == 0
    log = (nodes.place / "docker.log").read_text()
    assert "--network host" in log
    assert TOKEN not in log


def test_a_file_with_another_content_than_announced_is_not_taken(
    nodes: Nodes, hub: Hub, repo: tuple[str, str]
) -> None:
    hub.configure(repo[0], lie=[SHARDS[2]])
    run = nodes.fetch(*repo)
    assert run.returncode != 0
    assert f"{SHARDS[2]} of {repo[0]} arrived with another content" in run.stderr
    assert not (nodes.directory(*repo) / ".complete").exists()
    hub.configure(repo[0], lie=[])
    assert content(fetched(nodes, repo)) == FILES


def test_a_repository_that_lacks_a_shard_of_its_index_is_refused(nodes: Nodes, hub: Hub) -> None:
    files = {name: data for name, data in FILES.items() if name != SHARDS[2]}
    commit = hub.publish("lab/lacking", files)
    run = nodes.fetch("lab/lacking", commit)
    assert run.returncode != 0
    assert f"{SHARDS[2]} is missing or empty, and the index names it" in run.stderr
    assert not (nodes.directory("lab/lacking", commit) / ".complete").exists()
