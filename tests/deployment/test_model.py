"""The model on the lab: by the real client from a hub, over the fabric, resumed, repaired, adopted."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.deployment import MODEL, Deployment, Run
from lab.hub import Hub
from lab.images import fake_model
from lab.topology import USER
from tests.deployment.operator import command
from tests.deployment.stack import (
    CREDENTIALS,
    VLLM,
    ask,
    containers,
    edit,
    position,
    replaced,
    restarts,
    settle,
    unchanged,
)

pytestmark = pytest.mark.lab

REPO = "lab/tiny"
ROOT = f"/home/{USER}/models/hub"
TOKEN = "hf_of-the-lab"  # noqa: S105 - of no machine
SHARDS = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
SMALL = fake_model(seed=1)
# 25 MB a shard: the client writes 10 MB at a time.
LARGE = fake_model(rows=196_608, seed=2)


@pytest.fixture(scope="module")
def hub(pair: Deployment) -> Hub:
    """The lab's hub with a repository that wants a token."""
    hub = pair.lab.hub
    hub.publish(REPO, SMALL)
    hub.configure(REPO, token=TOKEN)
    return hub


@pytest.fixture(scope="module")
def served(pair: Deployment, hub: Hub) -> Iterator[Deployment]:
    """The pair, up with the hub's model; its stack file is as before at the end."""
    right = pair.config_file.read_text()
    pair.set_secret("hubToken", TOKEN)
    take(pair, hub, SMALL)
    yield settle(pair)
    pair.config_file.write_text(right)


def take(pair: Deployment, hub: Hub, files: Mapping[str, bytes], root: str = ROOT) -> str:
    """Publish a revision and put it into the stack file; returns its directory."""
    revision = hub.publish(REPO, files)
    endpoint = pair.lab.status()["hub"]
    model = {"repo": REPO, "revision": revision, "root": root, "endpoint": endpoint}
    edit(pair, lambda config: config.update(model=model))
    return f"{root}/{REPO.replace('/', '--')}/{revision}"


def test_a_branch_is_pinned_to_its_commit_by_what_the_hub_says(served: Deployment) -> None:
    pinned = current(served)
    edit(served, lambda config: config["model"].update(revision="main"))
    assert current(served) != pinned
    command(served, "discover", "--pin", "--yes")
    assert current(served) == pinned


def content(pair: Deployment, node: str, directory: str) -> dict[str, str]:
    """SHA-256 of each file that is no hidden one."""
    find = 'cd "$1" && find . -mindepth 1 -name ".*" -prune -o -type f -printf "%P\\n" | xargs sha256sum'
    lines = pair.lab.root(node, "sh", "-c", find, "sh", directory).splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def current(pair: Deployment) -> str:
    """The directory of the revision that the stack file names."""
    found: list[str] = []
    edit(pair, lambda config: found.append(config["model"]["revision"]))
    return f"{ROOT}/{REPO.replace('/', '--')}/{found[0]}"


def interrupted(pair: Deployment, *, when: Callable[[], bool], by: Callable[[], object]) -> Run:
    """Run `up`, and do something as soon as it is time."""
    with ThreadPoolExecutor(1) as pool:
        up = pool.submit(pair.pulumi, "up")
        end = time.monotonic() + 60
        while not when() and not up.done() and time.monotonic() < end:
            time.sleep(0.1)
        by()
        return up.result()


def on_its_way(pair: Deployment, node: str, directory: str) -> bool:
    find = 'find "$1/.incoming" -type f -size +9M 2>/dev/null || true'
    return bool(pair.lab.root(node, "sh", "-c", find, "sh", directory))


@pytest.mark.report("H1")
def test_every_node_has_the_revision_and_the_server_runs_from_it(served: Deployment, hub: Hub) -> None:
    directory = current(served)
    for node in ("head", "worker"):
        assert content(served, node, directory) == hashes(SMALL), node
        owner = served.lab.root(
            node, "stat", "-c", "%U", f"{directory}/{SHARDS[0]}", f"{directory}/.complete"
        )
        assert owner.split() == [USER, USER]
    assert sorted(each.path for each in hub.requests(REPO)) == sorted(SMALL)
    vllm = json.loads(served.lab.docker("head", "inspect", "vllm"))[0]
    assert "HF_HUB_OFFLINE=1" in vllm["Config"]["Env"]
    assert [mount["RW"] for mount in vllm["Mounts"] if mount["Destination"] == "/models"] == [False]
    assert ask(served).status_code == 200
    unchanged(served)


def test_the_token_is_nowhere_in_clear(served: Deployment) -> None:
    for file in served.scratch.rglob("*"):
        if file.is_file():
            assert TOKEN not in file.read_bytes().decode(errors="replace"), file
    assert TOKEN not in served.lab.docker("head", "inspect", "vllm", "ray-head")
    find = 'grep -rl "$1" /home /tmp /var/lib/docker/containers || true'
    assert served.lab.root("head", "sh", "-c", find, "sh", TOKEN) == ""


@CREDENTIALS
def test_another_token_runs_nothing_again(served: Deployment, hub: Hub) -> None:
    before = containers(served)
    hub.forget(REPO)
    served.set_secret("hubToken", "hf_another")
    run = served.must("up")
    served.set_secret("hubToken", TOKEN)
    served.must("up")
    assert replaced(run) == []
    assert {event.op for event in run.events if event.name.startswith("model-")} <= {"same", "update"}
    assert containers(served) == before
    assert hub.requests(REPO) == []


def another_token(pair: Deployment, hub: Hub) -> None:
    pair.set_secret("hubToken", "hf_wrong")
    take(pair, hub, fake_model(seed=11))


def another_repository(pair: Deployment, hub: Hub) -> None:
    del hub
    edit(pair, lambda config: config["model"].update(repo="lab/nobody"))


def another_commit(pair: Deployment, hub: Hub) -> None:
    del hub
    edit(pair, lambda config: config["model"].update(revision="0" * 40))


def a_small_disk(pair: Deployment, hub: Hub) -> None:
    small = f"/home/{USER}/small"
    pair.lab.root("head", "sh", "-c", f"mkdir -p {small} && mount -t tmpfs -o size=8m,uid=1000 tmpfs {small}")
    take(pair, hub, SMALL, root=small)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        pytest.param(another_token, "refuses the token", id="wrong token"),
        pytest.param(another_repository, "there is no lab/nobody on", id="unknown repository"),
        pytest.param(another_commit, "has no revision 0000000", id="unknown revision"),
        pytest.param(
            a_small_disk, r"head: /home/aurora/small.* needs 0 MB and has 8 MB free", id="small disk"
        ),
    ],
)
def test_what_cannot_be_fetched_stops_nothing(
    served: Deployment, hub: Hub, mistake: Callable[[Deployment, Hub], None], words: str
) -> None:
    before = containers(served)
    right = served.config_file.read_text()
    mistake(served, hub)
    hub.forget(REPO)
    run = served.pulumi("up")
    served.config_file.write_text(right)
    assert run.status != 0
    assert re.search(words, run.output), run.output
    assert "Traceback" not in run.output
    assert containers(served) == before
    assert hub.requests(REPO) == []


def test_the_way_back_from_a_refusal_restarts_nothing(served: Deployment) -> None:
    before = containers(served)
    served.must("up")
    assert containers(served) == before
    unchanged(served)


@pytest.mark.row("model revision", "fetched, copied, verified first; then vllm")
def test_another_revision_is_everywhere_before_vllm_alone_is_replaced(served: Deployment, hub: Hub) -> None:
    def another_revision(pair: Deployment) -> None:
        take(pair, hub, fake_model(seed=3))

    run = restarts(served, another_revision, VLLM)
    unchanged(served)
    fetched = position(run, "model-head", "create-replacement")
    copied = position(run, "model-worker", "create-replacement")
    assert fetched < copied < position(run, "vllm", "delete-replaced")
    for node in ("head", "worker"):
        assert content(served, node, current(served)) == hashes(fake_model(seed=3)), node
    assert ask(served).status_code == 200


def test_killed_transfers_go_on_where_they_ended(served: Deployment, hub: Hub) -> None:
    before = containers(served)
    directory = take(served, hub, LARGE)
    hub.configure(REPO, bytes_per_second=2_000_000)
    run = interrupted(
        served,
        when=lambda: on_its_way(served, "head", directory),
        by=lambda: served.lab.docker("head", "kill", "spark-vllm-test-fetch"),
    )
    assert run.status != 0
    assert "lab/tiny did not arrive whole" in run.output
    assert containers(served) == before

    hub.configure(REPO, bytes_per_second=0)
    hub.forget(REPO)
    rail = served.lab.nic("head", 0).name
    slow = ("root", "tbf", "rate", "40mbit", "burst", "128kb", "latency", "400ms")
    served.lab.root("head", "tc", "qdisc", "add", "dev", rail, *slow)
    run = interrupted(
        served,
        when=lambda: on_its_way(served, "worker", directory),
        by=lambda: served.lab.root("worker", "pkill", "-f", "spark-vllm-test-worker.sh"),
    )
    served.lab.root("head", "tc", "qdisc", "del", "dev", rail, "root")
    assert run.status != 0
    assert "worker: the model did not arrive whole" in run.output
    assert containers(served) == before
    resumed = [each for each in hub.requests(REPO) if each.path in SHARDS]
    assert any(each.start > 0 for each in resumed), resumed
    assert sum(each.sent for each in resumed) < sum(len(LARGE[shard]) for shard in SHARDS) - 8_000_000

    hub.forget(REPO)
    run = served.must("up")
    assert replaced(run) == VLLM
    assert hub.requests(REPO) == []
    left = re.search(r"worker: \d files, (\d+) MB to go", run.output)
    assert left, run.output
    assert int(left[1]) < sum(map(len, LARGE.values())) // 10**6 - 8
    for node in ("head", "worker"):
        assert content(served, node, directory) == hashes(LARGE), node
    assert ask(served).status_code == 200


def test_bad_shards_are_repaired_alone_and_not_under_the_server(served: Deployment, hub: Hub) -> None:
    lab, directory = served.lab, current(served)
    before = containers(served)
    lab.root("worker", "truncate", "-s", "-1", f"{directory}/{SHARDS[0]}")
    again = ("up", "--refresh", "--replace", "**::model-*")
    run = served.pulumi(*again)
    assert run.status != 0
    assert f"worker: {SHARDS[0]} in {directory} is not as on head" in run.output
    assert "docker stop vllm" in run.output
    assert containers(served) == before

    lab.docker("head", "stop", "vllm")
    lab.root("head", "rm", f"{directory}/{SHARDS[1]}")
    for node in ("head", "worker"):
        lab.root(node, "cp", f"{directory}/config.json", f"{directory}/model-00004-of-00003.safetensors")
    kept = lab.root("worker", "stat", "-c", "%i", f"{directory}/{SHARDS[2]}")
    hub.forget(REPO)
    run = served.must(*again)
    assert [each.path for each in hub.requests(REPO)] == [SHARDS[1]]
    assert "worker: 1 files, 25 MB to go" in run.output
    for node in ("head", "worker"):
        assert content(served, node, directory) == hashes(LARGE), node
    assert lab.root("worker", "stat", "-c", "%i", f"{directory}/{SHARDS[2]}") == kept
    assert set(replaced(run)) == set(VLLM)
    assert ask(served).status_code == 200


def test_a_directory_of_the_head_is_adopted_and_copied(served: Deployment, hub: Hub) -> None:
    lab = served.lab
    mine = f"/home/{USER}/models/mine"
    lab.root("head", "cp", "-a", MODEL, mine)
    hub.forget(REPO)
    edit(served, lambda config: config.update(model={"directory": mine}))
    served.must("up")
    assert hub.requests(REPO) == []
    assert content(served, "worker", mine) == content(served, "head", mine) == hashes(fake_model())
    assert lab.root("worker", "stat", "-c", "%U", mine) == USER
    assert ask(served).status_code == 200

    before = containers(served)
    lab.root("head", "truncate", "-s", "-1", f"{mine}/{SHARDS[1]}")
    run = served.pulumi("up", "--replace", "**::model-head")
    assert run.status != 0
    assert f"{mine}/{SHARDS[1]} is " in run.output
    assert "its header promises" in run.output
    assert containers(served) == before
