"""From one Spark to three and back: who joins, who is renamed, who leaves, who is gone for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from ruamel.yaml import YAML

from lab.deployment import Deployment
from lab.images import stub
from lab.instance import Lab
from tests.deployment.conftest import configured
from tests.deployment.stack import (
    ANY,
    RANKS,
    SERVER,
    VLLM,
    WORKER,
    WORKER_AND_VLLM,
    Config,
    Waves,
    another_flag,
    ask,
    by,
    containers,
    edit,
    foreseen,
    position,
    replaced,
    restarts,
    settle,
    settled,
    stack_on,
    unchanged,
)
from tests.instances import fresh

pytestmark = pytest.mark.lab

ADDED = pytest.mark.row("a worker added", "it joins; vllm", "Ray head, other workers")
LEFT = pytest.mark.row(
    "a worker removed or renamed", "drained; vllm; its container goes", "Ray head, other workers"
)


@pytest.fixture(scope="module")
def wide() -> Iterator[Lab]:
    yield from fresh("wide", workers=2, image=stub)


@pytest.fixture(scope="module")
def trio(wide: Lab, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A head and two workers; not up yet."""
    deployment = configured(
        stack_on(wide, tmp_path_factory.mktemp("trio"), "trio"), "vllm.pipelineParallelSize=3"
    )
    (deployment.scratch / "all.yaml").write_text(deployment.config_file.read_text())
    return deployment


def nodes(deployment: Deployment, *names: str) -> Callable[[Deployment], None]:
    """Name the nodes that are deployed; a name that no node has is what the last one is called now."""
    every = YAML(typ="safe").load(deployment.scratch / "all.yaml")["config"]["spark-vllm:nodes"]

    def change(config: Config) -> None:
        known = {node["name"]: node for node in config["nodes"]}
        found = every[: len(names)]
        config["nodes"] = [
            known.get(name) or {**node, "name": name} for name, node in zip(names, found, strict=True)
        ]
        config["vllm"]["pipelineParallelSize"] = len(names)

    return by(change)


def at(deployment: Deployment, *names: str) -> Deployment:
    """The stack, up with these nodes."""
    nodes(deployment, *names)(deployment)
    return settle(deployment)


def executor(deployment: Deployment, name: str) -> None:
    """Choose the executor."""
    edit(deployment, lambda config: config["vllm"].update({"executor": name}))


@SERVER
def test_one_node_needs_neither_ray_nor_fabric(trio: Deployment) -> None:
    nodes(trio, "head")(trio)
    run = trio.must("up")
    assert set(containers(trio)) == {"vllm"}
    names = {event.name for event in run.events}
    assert not {name for name in names if name.startswith(("link-", "fabric-", "drain", "cluster-"))}
    assert trio.output("executor") == "none"
    assert ask(trio).status_code == 200
    restarts(trio, by(another_flag), VLLM)


@ADDED
def test_the_first_worker_brings_ray_with_it(trio: Deployment) -> None:
    at(trio, "head")
    restarts(trio, nodes(trio, "head", "worker"), ["create head", "create worker", *VLLM], touches=ANY)
    assert ask(trio).status_code == 200


@ADDED
def test_a_worker_joins_and_the_others_go_on(trio: Deployment) -> None:
    at(trio, "head", "worker")
    # Its disk was prepared with the image (tests/instances.py); a real one has none of it.
    trio.lab.docker("worker2", "image", "prune", "--all", "--force")
    assert trio.lab.docker("worker2", "image", "ls", "--quiet") == ""
    run = restarts(trio, nodes(trio, "head", "worker", "worker2"), ["create worker2", *VLLM], touches=ANY)
    assert "worker2: spark-vllm/stub" not in run.output, "it had the image already"
    joined = position(run, "worker2", "create")
    for step in ("link-worker2", "image-worker2", "model-worker2", "ready-to-stop-worker2"):
        assert position(run, step, "create") < joined
    assert (
        joined
        < position(run, "cluster-check", "create-replacement")
        < position(run, "vllm", "delete-replaced")
    )
    assert ask(trio).status_code == 200
    unchanged(trio)


@WORKER
def test_one_worker_of_two_restarts_alone(trio: Deployment) -> None:
    at(trio, "head", "worker", "worker2")
    restarts(
        trio,
        by(lambda config: config["nodes"][1].update({"env": {"NCCL_DEBUG": "INFO"}})),
        WORKER_AND_VLLM,
    )


@LEFT
def test_a_worker_that_is_renamed_is_drained_before_it_joins_again(trio: Deployment) -> None:
    at(trio, "head", "worker", "worker2")
    run = restarts(
        trio, nodes(trio, "head", "worker", "spare"), ["create spare", *VLLM, "delete worker2"], touches=ANY
    )
    assert position(run, "drain", "create-replacement") < position(run, "spare", "create")
    assert ask(trio).status_code == 200
    # What the old name leaves behind at its end must not be what the new one uses.
    doors = trio.lab.root("worker2", "cat", "/home/aurora/.ssh/authorized_keys")
    assert [line.split()[-1] for line in doors.splitlines() if "restrict" in line] == [
        f"spark-vllm-{trio.stack}/spare"
    ]
    unchanged(trio)


def test_a_head_under_another_name_is_refused_before_anything_stops(trio: Deployment) -> None:
    at(trio, "head", "worker", "spare")
    before, right = containers(trio), trio.config_file.read_text()

    def rename(config: Config) -> None:
        config["nodes"][0]["name"] = "chief"
        for worker in config["nodes"][1:]:
            worker["ssh"]["jump"] = "chief"

    edit(trio, rename)
    run = trio.pulumi("up")
    trio.config_file.write_text(right)
    assert run.status != 0
    assert "those of a head named head: keep the name head" in run.output
    assert containers(trio) == before
    trio.must("up")
    assert containers(trio) == before


@LEFT
def test_a_worker_that_leaves_is_drained_before_vllm_restarts(trio: Deployment) -> None:
    at(trio, "head", "worker", "spare")
    run = restarts(trio, nodes(trio, "head", "worker"), [*VLLM, "delete spare"], touches=ANY)
    stop = position(run, "vllm", "delete-replaced")
    assert position(run, "drain", "create-replacement") < stop
    assert position(run, "cluster-check", "create-replacement") < stop
    assert trio.lab.docker("worker2", "ps", "-aq") == ""
    assert "spark-vllm" not in trio.lab.root("worker2", "cat", "/home/aurora/.ssh/authorized_keys")
    assert ask(trio).status_code == 200
    unchanged(trio)


@RANKS
def test_under_mp_who_joins_or_leaves_restarts_all_ranks(trio: Deployment) -> None:
    executor(trio, "mp")
    at(trio, "head", "worker")
    # The new one waits for the others, so it may come while they serve still.
    waves: Waves = [{"create worker2", "delete vllm", "delete worker", "create worker"}, "create vllm"]
    restarts(trio, nodes(trio, "head", "worker", "worker2"), waves, previews=False, touches=ANY)
    settled(trio)
    assert ask(trio).status_code == 200
    leaves = foreseen(trio, nodes(trio, "head", "worker"))
    assert set(leaves) == {*WORKER_AND_VLLM, "delete worker2"}
    executor(trio, "ray")


@LEFT
@pytest.mark.fault("a worker is gone for good")
def test_a_worker_that_is_gone_for_good_does_not_keep_the_others_from_serving(trio: Deployment) -> None:
    at(trio, "head", "worker", "worker2")
    before = containers(trio)
    trio.lab.power_off("worker2")
    nodes(trio, "head", "worker")(trio)
    run = trio.pulumi("up")
    # What stood on the lost node cannot be deleted there, and that is said, last of all.
    assert replaced(run)[:2] == VLLM
    assert run.status != 0
    assert "192.168.200.14" in run.output
    assert ask(trio).status_code == 200
    for node in ("head", "worker"):
        found = trio.lab.docker(node, "inspect", "-f", "{{.Id}}", f"ray-{node}").strip()
        assert found == before[f"ray-{node}"][0]
    # The README's recipe.
    lost = f"urn:pulumi:{trio.stack}::spark-vllm::spark-vllm:index:Node::worker2"
    trio.must("state", "delete", "--target-dependents", "--yes", lost)
    trio.must("up")
    run = trio.pulumi("preview", "--refresh", "--expect-no-changes")
    assert run.status == 0, run.output
