"""The model in the graph: fetched on the head early, sent to each worker, all there before the first stop."""

from __future__ import annotations

import json

import pulumi
import pytest

from tests import samples
from tests.graph import HUB_TOKEN, Graph, deploy, is_secret

HUB = {"repo": "lab/tiny", "revision": "1" * 40, "root": "/home/aurora/models"}


@pytest.fixture(scope="module")
def three() -> Graph:
    return deploy(samples.config(3, model=HUB))


def test_the_head_fetches_while_the_network_is_made(three: Graph) -> None:
    before = three.needs("Command model-head")
    assert "Command check-arguments" in before
    assert not any(key.startswith(("Command link-", "Command fabric-")) for key in before)


def test_each_worker_gets_it_through_its_own_door(three: Graph) -> None:
    for worker, other in (("worker", "worker2"), ("worker2", "worker")):
        before = three.needs(f"Command model-{worker}")
        assert {"Command model-head", f"Command fabric-peer-{worker}", "Command link-head"} <= before
        assert f"Command model-{other}" not in before
        assert "PEER_HOST_KEY=" in three[f"Command model-{worker}"].inputs["stdin"]


def test_every_node_has_it_before_the_first_stop(three: Graph) -> None:
    for late in ("Command check-engine", "Container head", "Container worker", "Container vllm"):
        assert {"Command model-head", "Command model-worker", "Command model-worker2"} <= three.needs(late)
    assert "Command model-worker2" in three.needs("Command ready-to-stop-worker2")


def test_the_workers_door_lets_nothing_be_written_elsewhere(three: Graph) -> None:
    assert "MODELS=/home/aurora/models\n" in _unquoted(three["Command fabric-peer-worker"].inputs["stdin"])
    directory = deploy(samples.config(model={"directory": "/home/aurora/models/mine"}))
    door = _unquoted(directory["Command fabric-peer-worker"].inputs["stdin"])
    assert "MODELS=/home/aurora/models/mine\n" in door


def _unquoted(script: str) -> str:
    return script.replace("'\"'\"'", "'")


def test_the_token_goes_to_the_fetch_alone_and_is_no_reason_to_run_it(three: Graph) -> None:
    for name, command in three.of_type("Command").items():
        found = HUB_TOKEN in json.dumps(command.inputs)
        assert found == (name == "model-head"), name
        assert HUB_TOKEN not in json.dumps(command.inputs.get("triggers", [])), name
    assert is_secret(three["Command model-head"].inputs["stdin"])
    for name, container in three.of_type("Container").items():
        assert HUB_TOKEN not in json.dumps(container.inputs), name
        assert "HF_HUB_OFFLINE=1" in json.dumps(container.inputs["envs"]), name
    without = deploy(samples.config(3, model=HUB, vllm=_open()), secrets=False)
    key = "Command model-head"
    assert without[key].inputs["triggers"] == three[key].inputs["triggers"]
    assert not is_secret(without[key].inputs["stdin"])


def _open() -> dict[str, object]:
    return {**samples.config()["vllm"], "allowUnauthenticated": True}


def test_another_image_is_no_reason_to_look_at_the_files_again(three: Graph) -> None:
    image = {"ref": f"registry.invalid/vllm:v2@sha256:{'cd' * 32}"}
    other = deploy(samples.config(3, model=HUB, image=image))
    for name in ("model-head", "model-worker", "model-worker2"):
        key = f"Command {name}"
        assert other[key].inputs["triggers"] == three[key].inputs["triggers"], name


def test_another_revision_moves_the_model_and_the_server_alone(three: Graph) -> None:
    other = deploy(samples.config(3, model={**HUB, "revision": "2" * 40}))
    moved = {
        name
        for name, container in three.of_type("Container").items()
        if container.inputs != other[f"Container {name}"].inputs
    }
    assert moved == {"vllm"}
    run_again = {
        name
        for name, command in three.of_type("Command").items()
        if command.inputs.get("triggers") != other[f"Command {name}"].inputs.get("triggers")
    }
    assert {"model-head", "model-worker", "model-worker2", "check-engine"} <= run_again
    assert not any(name.startswith(("image", "link", "preflight", "cluster")) for name in run_again)


def test_a_directory_is_looked_at_and_not_fetched() -> None:
    pair = deploy(samples.config())
    script = pair["Command model-head"].inputs["stdin"]
    assert not is_secret(script)
    assert "huggingface_hub" not in script
    assert "MANIFEST=.cache/spark-vllm/model-" in script
    assert "OURS=no\n" in pair["Command model-worker"].inputs["stdin"]
    solo = deploy(samples.config(1))
    assert "MANIFEST=''\n" in solo["Command model-head"].inputs["stdin"]


def test_a_branch_is_let_pass_by_a_preview_and_refused_by_up() -> None:
    branch = samples.config(model={"repo": "lab/tiny", "root": "/home/aurora/models"})
    assert "Container vllm" in deploy(branch, preview=True).resources
    with pytest.raises(pulumi.RunError, match=r"git ls-remote https://huggingface.co/lab/tiny main"):
        deploy(branch)


def test_half_a_model_is_none_for_the_gate_before_the_first_change(three: Graph) -> None:
    folder = f"/home/aurora/models/lab--tiny/{'1' * 40}"
    assert f"PRESENT={folder}/.complete\n" in three["Command check-arguments"].inputs["stdin"]
    pair = deploy(samples.config())
    assert "PRESENT=/home/aurora/models/tiny/config.json\n" in pair["Command check-arguments"].inputs["stdin"]
