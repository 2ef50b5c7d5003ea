"""The other executor, `mp`: the switch in both directions, and all ranks together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import PurePosixPath

import httpx
import pytest

from lab.deployment import MODEL, Deployment
from lab.images import stub
from lab.topology import USER
from tests.deployment.stack import (
    DEAD_WORKER,
    RANKS,
    WORKER_AND_VLLM,
    Config,
    Edit,
    another_env,
    another_flag,
    another_secret,
    ask,
    by,
    containers,
    each_restarts,
    edit,
    foreseen,
    position,
    replaced,
    restarts,
    settle,
    unchanged,
)

pytestmark = pytest.mark.lab

SWITCH = pytest.mark.row(
    "executor ray to mp, mp to ray",
    "each worker's container in place, vllm; the Ray head goes last or comes first",
    "network, image, model",
)

counter = itertools.count(1)


def to(executor: str) -> Callable[[Deployment], None]:
    return by(lambda config: config["vllm"].update({"executor": executor}))


@pytest.fixture
def over_ray(pair: Deployment) -> Deployment:
    to("ray")(pair)
    return settle(pair)


@pytest.fixture
def over_mp(pair: Deployment) -> Deployment:
    to("mp")(pair)
    return settle(pair)


@SWITCH
def test_from_ray_to_mp_the_ray_head_goes_last(over_ray: Deployment) -> None:
    run = restarts(over_ray, to("mp"), [*WORKER_AND_VLLM, "delete head"])
    assert set(containers(over_ray)) == {"vllm", "vllm-worker"}
    assert position(run, "ready-worker", "create") < position(run, "head", "delete")
    assert ask(over_ray).status_code == 200
    unchanged(over_ray)


@RANKS
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda config: config["network"].update({"mtu": 1500}), id="MTU"),
        pytest.param(
            lambda config: config["nodes"][1]["rails"][1].update({"address": "192.168.201.99/24"}),
            id="a rail of one node",
        ),
    ],
)
def test_under_mp_a_change_of_the_rails_would_restart_all_ranks(over_mp: Deployment, change: Edit) -> None:
    assert set(foreseen(over_mp, by(change))) == set(WORKER_AND_VLLM)


def another_name(config: Config) -> None:
    config["vllm"]["servedModelName"] = f"tiny{next(counter)}"


@RANKS
def test_under_mp_all_ranks_restart_together(over_mp: Deployment) -> None:
    lab, folder = over_mp.lab, f"/home/{USER}/elsewhere"
    image = lab.push(stub(lab.outer, "v6"))
    lab.root("head", "sh", "-c", 'mkdir -p "$2" && cp -a "$1" "$2"', "sh", MODEL, folder)
    directory = f"{folder}/{PurePosixPath(MODEL).name}"
    changes = {
        "a flag": by(another_flag),
        "served name": by(another_name),
        "env of rank 0": by(another_env(0)),
        "env of rank 1": by(another_env(1)),
        "API key": another_secret("apiKey"),
        "image": by(lambda config: config["image"].update({"ref": image})),
        "folder of models": by(lambda config: config["model"].update({"directory": directory})),
    }
    each_restarts(over_mp, changes, WORKER_AND_VLLM, touches={"image", "model"})
    assert ask(over_mp).status_code == 200


@DEAD_WORKER
def test_under_mp_a_dead_rank_is_no_healthy_server_and_is_replaced(over_mp: Deployment) -> None:
    over_mp.lab.docker("worker", "kill", "vllm-worker")
    url = f"{over_mp.output('endpoint').removesuffix('/v1')}/health"
    wait_until(lambda: health(url) != 200, 60)
    restarts(over_mp, lambda _: None, WORKER_AND_VLLM, refresh=True)
    assert ask(over_mp).status_code == 200


@pytest.mark.fault("a rank is lost under mp")
def test_under_mp_ranks_that_lose_one_meet_again_by_themselves(over_mp: Deployment) -> None:
    before = containers(over_mp)
    over_mp.lab.root("worker", "pkill", "-KILL", "-f", "^python3 /usr/local/bin/vllm serve")
    url = f"{over_mp.output('endpoint').removesuffix('/v1')}/health"
    wait_until(lambda: health(url) != 200, 60)
    wait_until(lambda: health(url) == 200, 60)
    assert ask(over_mp).status_code == 200
    after = containers(over_mp)
    assert {name: facts[0] for name, facts in after.items()} == {
        name: facts[0] for name, facts in before.items()
    }
    assert all(after[name][1] != before[name][1] for name in after)
    unchanged(over_mp)


def test_under_mp_a_dead_server_is_replaced_and_its_ranks_wait_for_the_next(over_mp: Deployment) -> None:
    before = containers(over_mp)
    over_mp.lab.docker("head", "kill", "vllm")
    assert replaced(over_mp.must("up", "--refresh")) == ["delete vllm", "create vllm"]
    assert containers(over_mp)["vllm-worker"][0] == before["vllm-worker"][0]
    assert ask(over_mp).status_code == 200
    unchanged(over_mp)


def test_under_mp_a_rank_that_dies_at_load_ends_the_up_at_once_with_its_own_log(over_mp: Deployment) -> None:
    right = over_mp.config_file.read_text()
    edit(
        over_mp,
        lambda config: config["nodes"][1].update({"env": {"STUB_LOAD_S": "600", "STUB_EXIT_AFTER_S": "3"}}),
    )
    began = time.monotonic()
    run = over_mp.pulumi("up")
    over_mp.config_file.write_text(right)
    assert run.status != 0
    # The limit is an hour (vllm.readyTimeout): what is dead is not waited for.
    assert time.monotonic() - began < 120
    assert "worker: vllm-worker has ended" in run.output
    assert "Engine core initialization failed" in run.output
    assert "lost rank 1 (worker)" in run.output
    over_mp.must("up")
    assert ask(over_mp).status_code == 200
    unchanged(over_mp)


@SWITCH
def test_from_mp_to_ray_the_ray_head_comes_first(over_mp: Deployment) -> None:
    restarts(over_mp, to("ray"), ["create head", *WORKER_AND_VLLM])
    assert set(containers(over_mp)) == {"vllm", "ray-head", "ray-worker"}
    assert ask(over_mp).status_code == 200
    unchanged(over_mp)


def health(url: str) -> int:
    try:
        return httpx.get(url, timeout=5).status_code
    except httpx.TransportError:
        return 0


def wait_until(what: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.3)
