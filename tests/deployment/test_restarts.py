"""What restarts: each row of the README's table on the real engine, with the stub image."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

import pytest

from lab.deployment import MODEL, Deployment
from lab.topology import USER
from tests.deployment.stack import (
    ALL_OF_RAY,
    HEAD,
    SERVER,
    VLLM,
    WORKER,
    WORKER_AND_VLLM,
    Config,
    Waves,
    another_secret,
    ask,
    by,
    containers,
    each_restarts,
    edit,
    restarts,
    unchanged,
)

pytestmark = pytest.mark.lab

counter = itertools.count(1)


def a_serve_only_variable(config: Config) -> None:
    config["vllm"].setdefault("env", {})["STUB_NOTE"] = f"note {next(counter)}"


def the_served_name(config: Config) -> None:
    config["vllm"]["servedModelName"] = "tiny" if config["vllm"]["servedModelName"] != "tiny" else "small"


def a_parser(config: Config) -> None:
    config["vllm"]["reasoningParser"] = "qwen3"


def a_flag_of_one_worker(config: Config) -> None:
    config["nodes"][1]["rayArgs"] = {"num-cpus": 2 + next(counter)}


def a_flag_of_the_head(config: Config) -> None:
    config["nodes"][0]["rayArgs"] = {"num-cpus": 2 + next(counter)}


def the_ray_port(config: Config) -> None:
    config["ray"] = {"port": 6390 + next(counter)}


OF_THE_SERVER = {
    "served name": by(the_served_name),
    "parser": by(a_parser),
    "serve-only env": by(a_serve_only_variable),
}
OF_THE_HEAD = {
    "flag": by(a_flag_of_the_head),
    "port": by(the_ray_port),
    "token": another_secret("rayToken"),
}
ROWS = [
    pytest.param(OF_THE_SERVER, VLLM, id="the server", marks=SERVER),
    pytest.param({"flag": by(a_flag_of_one_worker)}, WORKER_AND_VLLM, id="one Ray worker", marks=WORKER),
    pytest.param(OF_THE_HEAD, ALL_OF_RAY, id="the Ray head", marks=HEAD),
]


@pytest.mark.parametrize(("changes", "expected"), ROWS)
def test_changes_replace_what_the_table_says(
    deployed: Deployment, changes: Mapping[str, Callable[[Deployment], None]], expected: Waves
) -> None:
    each_restarts(deployed, changes, expected)
    assert ask(deployed).status_code == 200


@SERVER
def test_another_api_key_restarts_vllm_and_the_old_one_is_refused(deployed: Deployment) -> None:
    old = deployed.api_key()
    restarts(deployed, another_secret("apiKey"), VLLM)
    assert deployed.api_key() != old
    assert ask(deployed, key=old).status_code == 401
    assert ask(deployed).status_code == 200


@pytest.mark.row("the folder above the model's own", "all of Ray, vllm")
@pytest.mark.report("H6")
def test_a_model_in_another_folder_is_what_every_container_sees(deployed: Deployment) -> None:
    folder = f"/home/{USER}/others"
    for node in ("head", "worker"):
        deployed.lab.root(node, "sh", "-c", 'mkdir -p "$2" && cp -a "$1" "$2"', "sh", MODEL, folder)
    new = f"{folder}/{PurePosixPath(MODEL).name}"
    restarts(deployed, by(lambda config: config["model"].update({"directory": new})), ALL_OF_RAY)
    for node, name in (("head", "ray-head"), ("head", "vllm"), ("worker", "ray-worker")):
        mounts = deployed.lab.docker(node, "inspect", "--format={{.HostConfig.Mounts}}", name)
        assert f" {folder} /models " in mounts
    assert ask(deployed).status_code == 200
    unchanged(deployed)


def test_a_typo_in_a_flag_is_refused_while_the_old_server_answers(deployed: Deployment) -> None:
    before = containers(deployed)
    edit(deployed, lambda config: config["vllm"].setdefault("args", {}).update({"max-modl-len": 1}))
    run = deployed.pulumi("up")
    edit(deployed, lambda config: config["vllm"]["args"].pop("max-modl-len"))
    assert run.status != 0
    assert "max-modl-len" in run.output
    assert "nothing was stopped" in run.output
    assert containers(deployed) == before
    assert ask(deployed).status_code == 200
    unchanged(deployed)


@pytest.mark.report("V1")
def test_a_wrong_parser_is_refused_with_the_known_ones(deployed: Deployment) -> None:
    before = containers(deployed)
    edit(deployed, lambda config: config["vllm"].update({"toolCallParser": "qwen3_codr"}))
    run = deployed.pulumi("up")
    edit(deployed, lambda config: config["vllm"].pop("toolCallParser"))
    assert run.status != 0
    assert "qwen3_coder" in run.output
    assert containers(deployed) == before


def test_who_has_no_key_gets_no_answer(deployed: Deployment) -> None:
    assert ask(deployed, key="wrong").status_code == 401
