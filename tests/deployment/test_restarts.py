"""What restarts: each row of the table on the real engine, with the stub image."""

from __future__ import annotations

import itertools

import pytest

from lab.deployment import Deployment
from tests.deployment.stack import Config, ask, containers, edit, replaced, unchanged

pytestmark = pytest.mark.lab

ALL_OF_RAY = ["delete vllm", "delete worker", "delete head", "create head", "create worker", "create vllm"]
WORKER_AND_VLLM = ["delete vllm", "delete worker", "create worker", "create vllm"]
VLLM = ["delete vllm", "create vllm"]
DOCKER_NAMES = {"head": "ray-head", "worker": "ray-worker", "vllm": "vllm"}

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


def env_of_one_worker(config: Config) -> None:
    config["nodes"][1]["env"] = {"NCCL_DEBUG": f"INFO{next(counter)}"}


def env_of_the_head(config: Config) -> None:
    config["nodes"][0]["env"] = {"NCCL_DEBUG": f"INFO{next(counter)}"}


ROWS = [
    pytest.param(a_vllm_flag, VLLM, id="a vLLM flag"),
    pytest.param(a_serve_only_variable, VLLM, id="serve-only env"),
    pytest.param(env_of_one_worker, WORKER_AND_VLLM, id="env of one worker"),
    pytest.param(env_of_the_head, ALL_OF_RAY, id="env of the Ray head"),
]


@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize(("change", "expected"), ROWS)
def test_a_change_replaces_what_the_table_says(
    deployed: Deployment, change: object, expected: list[str], turn: int
) -> None:
    before = containers(deployed)
    edit(deployed, change)  # type: ignore[arg-type]
    run = deployed.must("up")
    assert replaced(run) == expected
    after = containers(deployed)
    moved = {DOCKER_NAMES[step.partition(" ")[2]] for step in expected}
    assert {name for name in after if after[name] != before[name]} == moved
    assert deployed.pulumi("preview", "--expect-no-changes").status == 0
    if turn == 0:
        assert ask(deployed).status_code == 200
        unchanged(deployed)


@pytest.mark.parametrize("turn", range(5))
def test_a_dead_worker_is_replaced_with_what_stands_on_it(deployed: Deployment, turn: int) -> None:
    before = containers(deployed)
    how = ("kill",) if turn % 2 == 0 else ("rm", "-f")
    deployed.lab.docker("worker", *how, "ray-worker")
    run = deployed.must("up", "--refresh")
    # A removed container has nothing left to delete; the order of the rest is the table's.
    expected = WORKER_AND_VLLM if how == ("kill",) else ["delete vllm", "create worker", "create vllm"]
    assert replaced(run) in (expected, WORKER_AND_VLLM)
    assert containers(deployed)["ray-head"] == before["ray-head"]
    assert deployed.pulumi("preview", "--refresh", "--expect-no-changes").status == 0


def test_a_comment_and_the_order_of_keys_change_nothing(deployed: Deployment) -> None:
    text = deployed.config_file.read_text()
    deployed.config_file.write_text(f"# a comment\n{text}")
    edit(deployed, lambda config: config.update({"vllm": config.pop("vllm")}))
    assert deployed.pulumi("preview", "--expect-no-changes").status == 0


def test_a_typo_in_a_flag_is_refused_while_the_old_server_answers(deployed: Deployment) -> None:
    before = containers(deployed)
    edit(deployed, lambda config: config["vllm"]["args"].update({"max-modl-len": 1}))
    run = deployed.pulumi("up")
    assert run.status != 0
    assert "max-modl-len" in run.output
    assert "nothing was stopped" in run.output
    assert containers(deployed) == before
    assert ask(deployed).status_code == 200
    edit(deployed, lambda config: config["vllm"]["args"].pop("max-modl-len"))
    unchanged(deployed)


def test_a_wrong_parser_is_refused_with_the_known_ones(deployed: Deployment) -> None:
    before = containers(deployed)
    edit(deployed, lambda config: config["vllm"].update({"toolCallParser": "qwen3_codr"}))
    run = deployed.pulumi("up")
    assert run.status != 0
    assert "qwen3_coder" in run.output
    assert containers(deployed) == before
    edit(deployed, lambda config: config["vllm"].pop("toolCallParser"))


def test_who_has_no_key_gets_no_answer(deployed: Deployment) -> None:
    assert ask(deployed, key="wrong").status_code == 401
