"""What breaks in the middle of an `up`: it ends in time, says where, and `up --refresh` brings it to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.deployment import Deployment, Run
from tests.deployment.stack import another_flag, answers, ask, edit, replaced, settle, unchanged
from tests.deployment.test_faults import Harm, crash, dockerd, fault, power_cut

pytestmark = pytest.mark.lab

END_SECONDS = 120
LOAD_SECONDS = 20
"""Long enough that what breaks while the model loads has an effect on the load."""


@pytest.fixture(scope="module")
def slow(pair: Deployment) -> Iterator[Deployment]:
    """The pair, up, with a server that takes its time to load."""
    right = pair.config_file.read_text()
    edit(pair, lambda config: config["vllm"].update({"env": {"STUB_LOAD_S": str(LOAD_SECONDS)}}))
    yield settle(pair)
    pair.config_file.write_text(right)


def while_it_loads(deployment: Deployment, harm: Harm) -> Run:
    """Change a flag, do harm while the new server loads, and put the harm's `up` to its end."""
    before = deployment.lab.docker("head", "inspect", "--format={{.Id}}", "vllm")
    with ThreadPoolExecutor(1) as pool:
        up = pool.submit(deployment.pulumi, "up")
        log = "docker inspect --format={{.Id}} vllm && docker logs vllm 2>&1 || true"
        end = time.monotonic() + 60
        while not up.done() and time.monotonic() < end:
            said = deployment.lab.root("head", "bash", "-c", log)
            if before.strip() not in said and "Loading safetensors" in said:
                break
            time.sleep(0.2)
        harm(deployment.lab)
        return up.result(END_SECONDS)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        pytest.param(crash("head", "vllm"), ["was started again"], id="vllm"),
        pytest.param(crash("worker", "ray-worker"), ["was started again"], id="ray worker"),
        pytest.param(crash("head", "ray-head"), [""], id="ray head"),
        pytest.param(dockerd("head"), [""], id="dockerd of the head"),
        pytest.param(dockerd("worker"), [""], id="dockerd of the worker"),
        pytest.param(power_cut("worker"), [""], id="worker"),
        pytest.param(power_cut("head"), [""], id="head"),
        pytest.param(power_cut("head", "worker"), [""], id="both"),
    ],
)
def test_what_breaks_while_the_model_loads(slow: Deployment, harm: Harm, words: list[str]) -> None:
    edit(slow, another_flag)
    began = time.monotonic()
    run = while_it_loads(slow, harm)
    print("up", run.status, time.monotonic() - began, [e for e in run.events if "failed" in e.op])
    print([line for line in run.output.splitlines() if "rror" in line][-6:])
    began = time.monotonic()
    run = slow.must("up", "--refresh")
    print("again", time.monotonic() - began, replaced(run))
    assert ask(slow).status_code == 200
    unchanged(slow)
