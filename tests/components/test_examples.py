"""The stack files of the repository: each previews as it stands, and holds neither secret nor salt."""

from __future__ import annotations

import json
import re

import pytest
from ruamel.yaml import YAML

from tests.graph import ROOT, Graph, deploy

STACKS = {"spark": 2, "spark-solo": 1, "spark-quad": 4}


def graph_of(stack: str) -> Graph:
    """What a stack file deploys."""
    document = YAML(typ="safe").load(ROOT / f"Pulumi.{stack}.yaml")
    assert document["config"]["pulumi:disable-default-providers"] == ["docker"]
    own = {
        key.removeprefix("spark-vllm:"): value
        for key, value in document["config"].items()
        if key.startswith("spark-vllm:")
    }
    return deploy(json.loads(json.dumps(own)), preview=True, secrets=False)


@pytest.mark.parametrize(("stack", "nodes"), STACKS.items())
def test_a_stack_file_previews_as_it_stands(stack: str, nodes: int) -> None:
    graph = graph_of(stack)
    assert len(graph.of_type("Container")) == (nodes + 1 if nodes > 1 else 1)


# What the deployment by hand ended with, and what others found to help: design.md, sections 1 and 5.
SERVE = """
--served-model-name=qwen3.5-122b --host=0.0.0.0 --port=8000 --gpu-memory-utilization=0.8
--tensor-parallel-size=2 --pipeline-parallel-size=1 --distributed-executor-backend=ray
--tool-call-parser=qwen3_coder --enable-auto-tool-choice --reasoning-parser=qwen3
--max-model-len=131072 --max-num-seqs=20 --enable-prefix-caching --load-format=fastsafetensors
"""
RAY = """
--block --num-gpus=1 --object-store-memory=1073741824 --min-worker-port=20000 --max-worker-port=20999
--node-manager-port=6380 --object-manager-port=6381 --runtime-env-agent-port=6382 --metrics-export-port=6385
--dashboard-agent-grpc-port=6383 --dashboard-agent-listen-port=6384
"""
ROLE = {
    "head": "--head --port=6379 --include-dashboard=false --node-name=head --node-ip-address=192.168.200.12",
    "worker": "--address=192.168.200.12:6379 --node-name=worker --node-ip-address=192.168.200.13",
}
EVERYWHERE = """
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True NVIDIA_REQUIRE_CUDA= RAY_memory_monitor_refresh_ms=0
GLOO_SOCKET_IFNAME=enp1s0f0np0 TP_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME=enp1s0f0np0
NCCL_IB_HCA==rocep1s0f0,roceP2p1s0f0 NCCL_IGNORE_CPU_AFFINITY=1 HF_HUB_OFFLINE=1
XDG_CACHE_HOME=/cache VLLM_CACHE_ROOT=/cache/vllm TRITON_CACHE_DIR=/cache/triton
FLASHINFER_WORKSPACE_BASE=/cache
TORCHINDUCTOR_CACHE_DIR=/cache/inductor PYTHONPYCACHEPREFIX=/cache/pycache
"""


def test_the_pair_has_each_flag_and_variable_that_the_hand_deployment_ended_with() -> None:
    graph = graph_of("spark")
    server = graph["Container vllm"].inputs
    assert server["command"][:4] == ["serve", "vllm", "serve", "/models/Qwen3.5-122B-A10B-FP8"]
    assert set(server["command"][4:]) == set(SERVE.split())
    for node, address in (("head", "192.168.200.12"), ("worker", "192.168.200.13")):
        ray = graph[f"Container {node}"].inputs
        assert set(ray["command"]) == {"ray", "start", *RAY.split(), *ROLE[node].split()}
        assert {*EVERYWHERE.split(), f"VLLM_HOST_IP={address}", "RAY_num_prestart_python_workers=0"} <= set(
            ray["envs"]
        )
        assert "NCCL_IB_GID_INDEX" not in str(ray["envs"])
        assert ray["devices"] == [
            {
                "hostPath": "/dev/infiniband",
                "containerPath": "/dev/infiniband",
                "permissions": "rwm",
            }
        ]
        assert ray["ulimits"] == [{"name": "memlock", "soft": -1, "hard": -1}]
        assert ray["gpus"] == "all"
    assert {*EVERYWHERE.split(), "VLLM_HOST_IP=192.168.200.12"} <= set(server["envs"])
    assert "MTU=9000\n" in graph["Command network-head"].inputs["stdin"]


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_file_holds_no_secret_and_no_salt(stack: str) -> None:
    text = (ROOT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    assert "encryptionsalt" not in text
    assert "secure:" not in text
    assert not re.search(r"hostKey|apiKey:|rayToken:", text)
