"""What restarts: each row of the table on the real engine, with the stub image."""

from __future__ import annotations

import itertools

import pytest

from lab.deployment import Deployment
from tests.deployment.stack import Config, Edit, ask, containers, edit, replaced, unchanged

pytestmark = pytest.mark.lab

ALL_OF_RAY = ["delete vllm", "delete worker", "delete head", "create head", "create worker", "create vllm"]
WORKER_AND_VLLM = ["delete vllm", "delete worker", "create worker", "create vllm"]
VLLM = ["delete vllm", "create vllm"]
DOCKER_NAMES = {"head": "ray-head", "worker": "ray-worker", "vllm": "vllm"}
TURNS = 5

counter = itertools.count(1)


@pytest.fixture
def deployed(pair: Deployment) -> Deployment:
    """The pair, as its stack file says."""
    pair.must("up", "--refresh")
    return pair


def a_vllm_flag(config: Config) -> None:
    config["vllm"].setdefault("args", {})["max-num-seqs"] = next(counter)


def a_serve_only_variable(config: Config) -> None:
    config["vllm"].setdefault("env", {})["STUB_NOTE"] = f"note {next(counter)}"


def the_served_name(config: Config) -> None:
    config["vllm"]["servedModelName"] = "tiny" if config["vllm"]["servedModelName"] != "tiny" else "small"


def env_of_one_worker(config: Config) -> None:
    config["nodes"][1]["env"] = {"NCCL_DEBUG": f"INFO{next(counter)}"}


def env_of_the_head(config: Config) -> None:
    config["nodes"][0]["env"] = {"NCCL_DEBUG": f"INFO{next(counter)}"}


def the_ray_port(config: Config) -> None:
    config["ray"] = {"port": 6390 + next(counter)}


# The number of turns: the order of replacements must not be a matter of luck.
ROWS = [
    pytest.param(a_vllm_flag, VLLM, TURNS, id="a vLLM flag"),
    pytest.param(the_served_name, VLLM, 2, id="served name"),
    pytest.param(a_serve_only_variable, VLLM, 1, id="serve-only env"),
    pytest.param(env_of_one_worker, WORKER_AND_VLLM, TURNS, id="env of one Ray worker"),
    pytest.param(env_of_the_head, ALL_OF_RAY, TURNS, id="env of the Ray head"),
    pytest.param(the_ray_port, ALL_OF_RAY, 1, id="Ray port"),
]


@pytest.mark.parametrize(("change", "expected", "turns"), ROWS)
def test_a_change_replaces_what_the_table_says(
    deployed: Deployment, change: Edit, expected: list[str], turns: int
) -> None:
    moved = {DOCKER_NAMES[step.partition(" ")[2]] for step in expected}
    for _ in range(turns):
        before = containers(deployed)
        edit(deployed, change)
        assert replaced(deployed.must("up")) == expected
        after = containers(deployed)
        assert {name for name in after if after[name] != before[name]} == moved
        assert deployed.pulumi("preview", "--expect-no-changes").status == 0
    assert ask(deployed).status_code == 200
    unchanged(deployed)


def test_a_preview_says_what_up_does(deployed: Deployment) -> None:
    edit(deployed, env_of_one_worker)
    previewed = replaced(deployed.must("preview"))
    assert previewed == replaced(deployed.must("up")) == WORKER_AND_VLLM


def test_a_dead_worker_is_replaced_with_what_stands_on_it(deployed: Deployment) -> None:
    for turn in range(TURNS):
        before = containers(deployed)
        removed = turn % 2 == 1
        deployed.lab.docker("worker", *(("rm", "-f") if removed else ("kill",)), "ray-worker")
        steps = replaced(deployed.must("up", "--refresh"))
        # A container that is gone has nothing left to delete.
        expected = [step for step in WORKER_AND_VLLM if not (removed and step == "delete worker")]
        assert sorted(steps) == sorted(expected)
        assert steps.index("create worker") < steps.index("create vllm")
        assert steps.index("delete vllm") < steps.index("create vllm")
        assert removed or steps == expected
        assert containers(deployed)["ray-head"] == before["ray-head"]
        assert deployed.pulumi("preview", "--refresh", "--expect-no-changes").status == 0


def test_a_comment_and_the_order_of_keys_change_nothing(deployed: Deployment) -> None:
    text = deployed.config_file.read_text()
    deployed.config_file.write_text(f"# a comment\n{text}")
    edit(deployed, lambda config: config.update({"vllm": config.pop("vllm")}))
    assert deployed.pulumi("preview", "--expect-no-changes").status == 0


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
