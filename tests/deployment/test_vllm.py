"""The real thing, tensor parallel over both nodes: a deployment, a change, the other executor, a destroy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo import REAL_SETTINGS
from lab.deployment import Deployment
from lab.images import real, tiny_model
from tests.deployment.listeners import DASHBOARD, Listener, listeners, settings_of, strangers
from tests.deployment.operator import command, report
from tests.deployment.stack import WORKER_AND_VLLM, ask, containers, edit, replaced, stack_on, unchanged
from tests.instances import fresh

pytestmark = [pytest.mark.lab, pytest.mark.real, pytest.mark.timeout(1800)]


# Compiling for the CPU tells nothing about the deployment, and takes as long as all the rest of a start.
EAGER = "vllm.args.enforce-eager=true"


BEFORE: dict[str, set[Listener]] = {}
"""What listened on each node before anything was deployed."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The real image on two nodes of its own."""
    for lab in fresh("real", image=real):
        image = real(lab.outer)
        deployment = stack_on(lab, tmp_path_factory.mktemp("real"), "real")
        deployment.put_model(tiny_model(lab.outer))
        deployment.configure(lab.push(image), *REAL_SETTINGS, EAGER)
        BEFORE.update({node: listeners(deployment, node) for node in lab.status()["nodes"]})
        deployment.must("up")
        yield deployment
        # gigabytes, which the next session need not unpack
        lab.keep_disk("head", image)


@pytest.mark.report("N1", "N2", "N3", "N7")
def test_a_completion_comes_from_both_nodes(served: Deployment) -> None:
    answer = ask(served)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] > 0
    log = served.lab.docker("head", "logs", "vllm")
    assert "world_size=2" in log or "tensor_parallel_size=2" in log
    workers = served.lab.root("worker", "ps", "-e", "-o", "args")
    assert "ray::RayWorker" in workers
    assert served.output("versions")["ray"].startswith("2.")


def nothing_else_listens(served: Deployment) -> None:
    settings = settings_of(served)
    for node in settings.nodes:
        new = listeners(served, node.name) - BEFORE[node.name]
        assert new, node.name
        assert strangers(new, settings, node) == set(), (node.name, sorted(new))
        assert DASHBOARD not in {each.port for each in new}


@pytest.mark.report("V5", "R10")
def test_nobody_else_gets_an_answer(served: Deployment) -> None:
    assert ask(served, key="wrong").status_code == 401
    nothing_else_listens(served)
    without = (
        "docker",
        "exec",
        "-e",
        "RAY_AUTH_MODE=disabled",
        "ray-worker",
        "python3",
        "/spark/ray_nodes.py",
    )
    asked = ("--address=192.168.200.12:6379", "--expect=head@192.168.200.12", "--timeout=5")
    said = served.lab.root("worker", "sh", "-c", '"$@" 2>&1; true', "sh", *without, *asked)
    assert "no answer from the Ray head" in said, said
    assert "nodes=" not in said


def test_a_flag_replaces_vllm_alone(served: Deployment) -> None:
    before = containers(served)
    edit(served, lambda config: config["vllm"]["args"].update({"max-num-seqs": 3}))
    assert replaced(served.must("up")) == ["delete vllm", "create vllm"]
    after = containers(served)
    assert {name for name in after if after[name] != before[name]} == {"vllm"}
    assert ask(served).status_code == 200
    unchanged(served)


def test_a_typo_is_refused_by_the_images_own_vllm(served: Deployment) -> None:
    before = containers(served)
    edit(served, lambda config: config["vllm"]["args"].update({"max-modl-len": 1}))
    run = served.pulumi("up")
    edit(served, lambda config: config["vllm"]["args"].pop("max-modl-len"))
    assert run.status != 0
    assert "max-modl-len" in run.output
    assert containers(served) == before
    assert ask(served).status_code == 200


def test_bench_measures_what_is_deployed(served: Deployment, tmp_path: Path) -> None:
    sweep = ("--concurrency=1,2", "--input-len=16", "--output-len=8", "--rounds=2", f"--out={tmp_path}")
    found = report(served, "bench", *sweep)
    assert [(each["concurrency"], each["completed"]) for each in found["points"]] == [(1, 2), (2, 4)]
    assert all(each["output_throughput"] > 0 and each["median_ttft_ms"] > 0 for each in found["points"])
    assert "@sha256:" in found["image"]
    assert found["versions"] == served.output("versions")
    assert found["settings"]["vllm"]["args"]["max-model-len"] == 512
    (measured,) = tmp_path.glob("*.json")
    assert served.api_key() not in measured.read_text()
    assert "<svg" in measured.with_suffix(".html").read_text()


def test_bench_of_prompts_that_are_too_long_says_so(served: Deployment, tmp_path: Path) -> None:
    sweep = ("--concurrency=1", "--input-len=4096", "--rounds=1", f"--out={tmp_path}")
    said = command(served, "bench", *sweep, status=1).stderr
    assert "max-model-len" in said
    assert list(tmp_path.iterdir()) == []


def test_chat_shows_the_models_own_words(served: Deployment) -> None:
    answer = report(served, "chat", "--max-tokens=16", "Say hello.")
    assert answer["content"] or answer["reasoning"]
    assert answer["completion_tokens"] == 16


def test_over_mp_both_nodes_answer_without_ray(served: Deployment) -> None:
    edit(served, lambda config: config["vllm"].update({"executor": "mp"}))
    assert replaced(served.must("up")) == [*WORKER_AND_VLLM, "delete head"]
    assert set(containers(served)) == {"vllm", "vllm-worker"}
    assert served.output("executor") == "mp"
    answer = ask(served)
    assert answer.status_code == 200, answer.text
    assert "raylet" not in served.lab.root("worker", "ps", "-e", "-o", "args")
    assert "world_size=2" in served.lab.docker("worker", "logs", "vllm-worker")
    nothing_else_listens(served)
    unchanged(served)


def test_destroy_leaves_no_container_and_no_key(served: Deployment) -> None:
    served.must("destroy")
    assert containers(served) == {}
    assert "spark-vllm" not in served.lab.root("worker", "cat", "/home/aurora/.ssh/authorized_keys")
    volumes = served.lab.docker("head", "volume", "ls", "-q", "--filter", "label=spark-vllm.stack=real")
    assert volumes.strip() == ""
