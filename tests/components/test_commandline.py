"""Command lines and environments: what the containers run, byte for byte."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.commandline import (
    base_env,
    environment,
    fabric_env,
    flags,
    kept_on_node,
    rank_env,
    ranks_generation,
    ray_args,
    ray_env,
    serve_args,
    serve_env,
)
from components.remote import compose, text
from components.settings import OWNED_RAY_FLAGS, parse
from tests import samples


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, ["--x"]),
        (False, []),
        (3, ["--x=3"]),
        (0.5, ["--x=0.5"]),
        ("", ["--x="]),
        ("-1 $HOME `a` 'b'", ["--x=-1 $HOME `a` 'b'"]),
        (["a", 2], ["--x", "a", "2"]),
        ({"b": [1, "ü"], "a": None}, ['--x={"b":[1,"ü"],"a":null}']),
    ],
)
@pytest.mark.report("V6", "D14")
def test_flags(value: object, expected: list[str]) -> None:
    assert flags({"x": value}) == expected  # type: ignore[dict-item]


def test_flags_stand_in_the_order_of_their_names_with_dashes() -> None:
    assert flags({"b_c": 1, "a": 2}) == ["--a=2", "--b-c=1"]


@pytest.mark.report("R1", "D2")
def test_the_model_comes_first_and_the_backend_is_named_once() -> None:
    args = serve_args(samples.settings())
    assert args[0] == "/models/tiny"
    assert [each for each in args if "executor-backend" in each] == ["--distributed-executor-backend=ray"]
    assert "--tensor-parallel-size=2" in args
    assert "--max-model-len=512" in args


def test_mp_gives_each_rank_its_place_and_the_api_to_the_first() -> None:
    settings = samples.settings(vllm={"servedModelName": "tiny", "executor": "mp"})
    head, worker = serve_args(settings, rank=0), serve_args(settings, rank=1)
    assert "--node-rank=0" in head
    assert "--headless" not in head
    assert {"--node-rank=1", "--headless", "--nnodes=2", "--master-addr=192.168.200.12"} <= set(worker)


def test_parsers() -> None:
    args = serve_args(
        samples.settings(
            vllm={"servedModelName": "t", "toolCallParser": "qwen3_coder", "reasoningParser": "qwen3"}
        )
    )
    assert {"--tool-call-parser=qwen3_coder", "--enable-auto-tool-choice", "--reasoning-parser=qwen3"} <= set(
        args
    )


@pytest.mark.report("N1", "N2")
def test_ray_is_told_its_address_on_every_node() -> None:
    settings = samples.settings()
    head, worker = (ray_args(settings, node) for node in settings.nodes)
    assert {"--head", "--port=6379", "--node-ip-address=192.168.200.12", "--include-dashboard=false"} <= set(
        head
    )
    assert {"--address=192.168.200.12:6379", "--node-ip-address=192.168.200.13"} <= set(worker)
    assert "--head" not in worker


@pytest.mark.report("R10")
def test_ray_is_held_small_and_to_fixed_ports_on_every_node() -> None:
    settings = samples.settings(ray={"objectStoreMemory": 2**30})
    for node in settings.nodes:
        args = ray_args(settings, node)
        assert "--object-store-memory=1073741824" in args
        for flag in (
            "node-name",
            "node-manager-port",
            "object-manager-port",
            "runtime-env-agent-port",
            "dashboard-agent-grpc-port",
            "dashboard-agent-listen-port",
            "metrics-export-port",
            "min-worker-port",
            "max-worker-port",
        ):
            assert [each for each in args if each.startswith(f"--{flag}=")], flag
            assert flag in OWNED_RAY_FLAGS, "a second value would win"
        # 32768 and above are handed out by Linux at random.
        ports = [int(each.rpartition("=")[2]) for each in args if "-port=" in each]
        assert len(set(ports)) == len(ports)
        assert max(ports) < 32768


@pytest.mark.report("N11", "N12")
def test_a_nodes_own_values_stay_on_it() -> None:
    configuration = samples.config()
    configuration["nodes"][1]["env"] = {"NCCL_DEBUG": "INFO"}
    settings = samples.settings(nodes=configuration["nodes"])
    kept = kept_on_node(settings)
    own = [fabric_env(node) for node in settings.nodes]
    differing = {name for name in own[0] if own[0][name] != own[1].get(name)}
    assert differing <= set(kept)
    assert {"GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "VLLM_HOST_IP"} <= set(kept)
    assert "NCCL_DEBUG" in kept
    assert "NCCL_DEBUG" not in kept_on_node(samples.settings())
    with pytest.raises(ValueError, match="VLLM_CONFIG_ROOT is not set here"):
        samples.settings(vllm={"servedModelName": "t", "env": {"VLLM_CONFIG_ROOT": "/elsewhere"}})


def test_the_ranks_of_mp_know_each_other() -> None:
    settings = samples.settings(vllm={"servedModelName": "tiny", "executor": "mp"})
    head, worker = (rank_env(settings, node) for node in settings.nodes)
    assert (head["SPARK_RANK"], worker["SPARK_RANK"]) == ("0", "1")
    assert head["SPARK_RANKS"] == worker["SPARK_RANKS"] == "head,worker"
    assert head["SPARK_LIFELINE"] == worker["SPARK_LIFELINE"] == "192.168.200.12:6386"
    assert head["SPARK_GENERATION"] == worker["SPARK_GENERATION"]
    assert head["SPARK_HEALTH"] == "http://127.0.0.1:8000/health"
    renamed = samples.config(vllm={"servedModelName": "tiny", "executor": "mp"})
    renamed["nodes"][1]["name"] = "spare"
    other = samples.settings(nodes=renamed["nodes"], vllm=renamed["vllm"])
    assert rank_env(other, other.head)["SPARK_GENERATION"] != head["SPARK_GENERATION"]


def test_an_address_of_any_rail_is_a_new_life_for_all_ranks_of_mp() -> None:
    def generation(second_rail: str) -> str:
        config = samples.config(3, vllm={"servedModelName": "tiny", "executor": "mp"})
        config["nodes"][1]["rails"][1]["address"] = second_rail
        return ranks_generation(parse(samples.raw(config)))

    right = samples.config(3)["nodes"][1]["rails"][1]["address"]
    assert generation(right) == generation(right)
    assert generation("192.168.201.99/24") != generation(right)


@pytest.mark.report("N7", "N11", "N15", "F3", "F4", "F5")
def test_each_node_has_its_own_addresses_and_interfaces() -> None:
    configuration = samples.config()
    configuration["nodes"][1]["rails"][0] |= {"interface": "enp1s0f1np1", "rdmaDevice": "rocep1s0f1"}
    configuration["nodes"][1]["gidIndex"] = 5
    settings = samples.settings(nodes=configuration["nodes"])
    head, worker = (fabric_env(node) for node in settings.nodes)
    assert head["VLLM_HOST_IP"] == "192.168.200.12"
    assert worker["VLLM_HOST_IP"] == "192.168.200.13"
    assert worker["GLOO_SOCKET_IFNAME"] == worker["NCCL_SOCKET_IFNAME"] == "enp1s0f1np1"
    assert head["NCCL_IB_HCA"] == "=rocep1s0f0,roceP2p1s0f0"
    assert worker["NCCL_IB_HCA"] == "=rocep1s0f1,roceP2p1s0f0"
    assert "NCCL_IB_GID_INDEX" not in head
    assert worker["NCCL_IB_GID_INDEX"] == "5"


@pytest.mark.report("M1")
def test_the_memory_monitor_is_off_where_the_raylet_reads_it() -> None:
    settings = samples.settings()
    for node in settings.nodes:
        assert ray_env(settings, node, token=False)["RAY_memory_monitor_refresh_ms"] == "0"
    assert serve_env(settings, settings.head, token=False)["RAY_memory_monitor_refresh_ms"] == "0"


def test_a_token_is_a_file_and_never_a_variable() -> None:
    env = ray_env(samples.settings(), samples.settings().head, token=True)
    assert env["RAY_AUTH_MODE"] == "token"
    assert env["RAY_AUTH_TOKEN_PATH"] == "/spark/ray-token"  # noqa: S105 - a path
    assert "RAY_AUTH_TOKEN" not in env


@pytest.mark.report("R15")
def test_the_head_waits_for_nobody_and_the_worker_for_the_head() -> None:
    settings = samples.settings()
    assert "SPARK_WAIT_FOR" not in ray_env(settings, settings.head, token=False)
    assert ray_env(settings, settings.workers[0], token=False)["SPARK_WAIT_FOR"] == "192.168.200.12:6379"
    expected = "head@192.168.200.12,worker@192.168.200.13"
    assert serve_env(settings, settings.head, token=False)["SPARK_RAY_NODES"] == expected


def test_one_node_knows_nothing_of_ray() -> None:
    settings = samples.settings(1)
    assert not any(name.startswith("RAY") for name in base_env(settings))
    assert "SPARK_RAY_NODES" not in serve_env(settings, settings.head, token=True)


@pytest.mark.report("M8")
def test_the_environment_of_the_person_comes_last() -> None:
    settings = samples.settings(ray={"env": {"NCCL_IGNORE_CPU_AFFINITY": "0"}})
    assert ray_env(settings, settings.head, token=False)["NCCL_IGNORE_CPU_AFFINITY"] == "0"
    assert environment({"b": "2", "a": "x y"}) == ["a=x y", "b=2"]


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_no_input_of_a_script_reaches_the_shell_unquoted(value: str) -> None:
    script = compose("lib.sh", {"VALUE": value}) + 'printf %s "$VALUE"'
    out = subprocess.run(["bash", "-s"], input=script.encode(), capture_output=True, check=True).stdout
    assert out.decode() == value


@given(st.dictionaries(st.sampled_from("abc"), st.recursive(st.text(), st.lists, max_leaves=3)))
@pytest.mark.report("D14")
def test_objects_arrive_as_the_same_json(value: dict[str, object]) -> None:
    (flag,) = flags({"x": value})  # type: ignore[dict-item]
    assert json.loads(flag.removeprefix("--x=")) == value


@pytest.mark.report("P7")
def test_a_comment_changes_nothing_that_is_sent() -> None:
    assert "#" not in "".join(line[:1] for line in text("lib.sh").splitlines())
    assert text("entry.sh").startswith("#!/bin/bash\n")
    assert shlex.quote("a b") in compose("lib.sh", {"X": "a b"})
