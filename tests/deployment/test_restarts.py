"""What restarts: each row of the README's table on the real engine, with the stub image."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lab.deployment import ROOT, Deployment
from tests.deployment.stack import (
    ALL_OF_RAY,
    DEAD_WORKER,
    VLLM,
    WORKER_AND_VLLM,
    Config,
    Waves,
    another_env,
    another_flag,
    another_secret,
    ask,
    by,
    containers,
    edit,
    replaced,
    restarts,
    unchanged,
)

pytestmark = pytest.mark.lab

TURNS = 5
"""Of what has an order: it must not be a matter of luck."""

SERVER = pytest.mark.row("a vLLM flag, served name, parser, API key, serve-only env", "vllm")
WORKER = pytest.mark.row("env or flag of one Ray worker", "that worker, vllm")
HEAD = pytest.mark.row("env or flag of the Ray head, Ray port, Ray token", "all of Ray, vllm")
DEAD_HEAD = pytest.mark.row("the Ray head's container died (`up --refresh`)", "all of Ray, vllm")
DEAD_VLLM = pytest.mark.row("vllm's container died (`up --refresh`)", "vllm")
NOTHING = pytest.mark.row(
    "SSH port or jump, the operator's key or machine, comments or the order of keys in the stack file, "
    "a new version of this program with the same meaning",
    "no container; connections and Commands may show as updated, and run nothing",
)

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


ROWS = [
    pytest.param(by(another_flag), VLLM, TURNS, id="a vLLM flag", marks=SERVER),
    pytest.param(by(the_served_name), VLLM, 1, id="served name", marks=SERVER),
    pytest.param(by(a_parser), VLLM, 1, id="parser", marks=SERVER),
    pytest.param(by(a_serve_only_variable), VLLM, 1, id="serve-only env", marks=SERVER),
    pytest.param(by(another_env(1)), WORKER_AND_VLLM, TURNS, id="env of one Ray worker", marks=WORKER),
    pytest.param(by(a_flag_of_one_worker), WORKER_AND_VLLM, 1, id="flag of one Ray worker", marks=WORKER),
    pytest.param(by(another_env(0)), ALL_OF_RAY, TURNS, id="env of the Ray head", marks=HEAD),
    pytest.param(by(a_flag_of_the_head), ALL_OF_RAY, 1, id="flag of the Ray head", marks=HEAD),
    pytest.param(by(the_ray_port), ALL_OF_RAY, 1, id="Ray port", marks=HEAD),
    pytest.param(another_secret("rayToken"), ALL_OF_RAY, 1, id="Ray token", marks=HEAD),
]


@pytest.mark.parametrize(("change", "expected", "turns"), ROWS)
def test_a_change_replaces_what_the_table_says(
    deployed: Deployment, change: Callable[[Deployment], None], expected: Waves, turns: int
) -> None:
    for turn in range(turns):
        restarts(deployed, change, expected, preview=turn == 0)
    assert ask(deployed).status_code == 200


@SERVER
def test_another_api_key_restarts_vllm_and_the_old_one_is_refused(deployed: Deployment) -> None:
    old = deployed.api_key()
    restarts(deployed, another_secret("apiKey"), VLLM)
    assert deployed.api_key() != old
    assert ask(deployed, key=old).status_code == 401
    assert ask(deployed).status_code == 200


DRIFT = [
    pytest.param(
        "worker", "ray-worker", WORKER_AND_VLLM, TURNS, id="a worker's container", marks=DEAD_WORKER
    ),
    pytest.param("head", "ray-head", ALL_OF_RAY, 1, id="the Ray head's container", marks=DEAD_HEAD),
    pytest.param("head", "vllm", VLLM, 1, id="vllm's container", marks=DEAD_VLLM),
]


@pytest.mark.parametrize(("node", "name", "expected", "turns"), DRIFT)
def test_what_died_is_replaced_with_what_stands_on_it(
    deployed: Deployment, node: str, name: str, expected: Waves, turns: int
) -> None:
    def kill(deployment: Deployment) -> None:
        docker(deployment, node, "kill", name)

    for turn in range(turns):
        run = restarts(deployed, kill, expected, refresh=True, preview=turn == 0)
        assert {event.op for event in run.events if event.name == "check-engine"} <= {"same", "refresh"}
    assert ask(deployed).status_code == 200


def docker(deployment: Deployment, node: str, *argv: str) -> None:
    deployment.lab.docker(node, *argv)


@DEAD_WORKER
def test_a_container_that_is_gone_is_made_again(deployed: Deployment) -> None:
    before = containers(deployed)
    deployed.lab.docker("worker", "rm", "-f", "ray-worker")
    steps = replaced(deployed.must("up", "--refresh"))
    # It has nothing left to delete, so the engine is free to create it before it stops what stood on it.
    assert sorted(steps) == ["create vllm", "create worker", "delete vllm"]
    assert steps.index("create worker") < steps.index("create vllm")
    assert containers(deployed)["ray-head"] == before["ray-head"]
    unchanged(deployed)


@NOTHING
def test_a_comment_and_the_order_of_keys_change_nothing(deployed: Deployment) -> None:
    text = deployed.config_file.read_text()
    deployed.config_file.write_text(f"# a comment\n{text}")
    edit(deployed, lambda config: config.update({"vllm": config.pop("vllm")}))
    assert deployed.pulumi("preview", "--expect-no-changes").status == 0


@NOTHING
def test_another_way_to_a_node_restarts_and_runs_nothing(deployed: Deployment) -> None:
    before, right = containers(deployed), deployed.config_file.read_text()
    deployed.lab.root("worker", "/usr/sbin/sshd", "-p", "2222")

    edit(deployed, lambda config: config["nodes"][1]["ssh"].update({"port": 2222}))
    for run in (deployed.must("preview"), deployed.must("up")):
        assert {event.op for event in run.events if event.name != "test"} == {"same", "update"}
    unchanged(deployed)
    assert containers(deployed) == before

    # The lab's operator has no other way to the worker than by the head, and a preview takes none.
    edit(deployed, lambda config: config["nodes"][1]["ssh"].pop("jump"))
    assert {event.op for event in deployed.must("preview").events} == {"same", "update"}
    deployed.config_file.write_text(right)
    deployed.must("up")
    assert containers(deployed) == before


@NOTHING
def test_another_operators_machine_sees_no_difference(deployed: Deployment, tmp_path: Path) -> None:
    program = shutil.copytree(
        ROOT, tmp_path / "elsewhere", ignore=shutil.ignore_patterns(".git", ".local", ".*cache", ".venv")
    )
    (program / ".venv").symlink_to(ROOT / ".venv")
    for script in (program / "scripts" / "remote").iterdir():
        script.write_text(f"{script.read_text()}# another version\n")
    with another_agent(deployed, tmp_path) as socket:
        unchanged(replace(deployed, root=program, agent=socket))


@contextmanager
def another_agent(deployment: Deployment, place: Path) -> Iterator[Path]:
    """An agent with a key of its own, which the nodes let in."""
    key, socket = place / "key", place / "agent"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    for node in deployment.lab.status()["nodes"]:
        words = f"echo '{public}' >>/home/aurora/.ssh/authorized_keys"
        deployment.lab.root(node, "sh", "-c", words)
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as agent:
        while not socket.exists():
            time.sleep(0.05)
        subprocess.run(
            ["ssh-add", "-q", str(key)], env={"SSH_AUTH_SOCK": str(socket), "PATH": "/usr/bin"}, check=True
        )
        yield socket
        agent.terminate()


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
