"""What runs in the containers: command lines and environments as pure functions of the settings.

Flags are written as one element, `--flag=value`, so that neither an empty value nor one that starts with a
dash can be taken for something else, and no shell ever sees them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from components.settings import (
    RANKS_PORT,
    RAY_PORTS,
    RAY_WORKER_PORTS,
    Executor,
    Flags,
    Node,
    Settings,
    digest,
)

if TYPE_CHECKING:
    from pydantic import JsonValue

CACHE = "/cache"
"""Where a container sees the caches of its node and image."""
HOME = "/spark"
"""Where a container finds what this program uploads into it."""

# https://docs.ray.io/en/latest/ray-security/token-auth.html, from Ray 2.52
RAY_TOKEN_ENV = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": f"{HOME}/ray-token"}

# Set on each node's own container and different on each: vLLM's Ray executor would copy the head's to all.
# https://docs.vllm.ai/en/stable/serving/distributed_serving/ and vllm/ray/ray_env.py
PER_NODE_ENV = (
    "VLLM_HOST_IP",
    "RAY_NODE_IP_ADDRESS",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
    "VLLM_API_KEY",
)


def flags(given: Flags) -> list[str]:
    """Write flags as elements of a command line, in the order of their names.

    Args:
        given: name without dashes to value: true is the flag alone, false and absent are the same, lists
            become one element each, objects become JSON.
    """
    result: list[str] = []
    for name, value in sorted(given.items()):
        flag = f"--{name.replace('_', '-')}"
        if value is False:
            continue
        if value is True:
            result.append(flag)
        elif isinstance(value, list):
            result += [flag, *map(_text, value)]
        else:
            result.append(f"{flag}={_text(value)}")
    return result


def serve_args(settings: Settings, *, rank: int = 0) -> list[str]:
    """Arguments of `vllm serve` on one node, the model first.

    Args:
        settings: the deployment.
        rank: place of the node in the list; only the `mp` executor runs it on others than the head.
    """
    vllm = settings.vllm
    own: dict[str, JsonValue] = {
        "served-model-name": vllm.served_model_name,
        "host": vllm.host,
        "port": vllm.port,
        "gpu-memory-utilization": vllm.gpu_memory_utilization,
        "tensor-parallel-size": settings.tensor_parallel_size,
        "pipeline-parallel-size": vllm.pipeline_parallel_size,
    }
    if settings.ranks_over:
        own["distributed-executor-backend"] = settings.ranks_over.value
    if settings.ranks_over is Executor.MP:
        own |= {
            "nnodes": len(settings.nodes),
            "node-rank": rank,
            "master-addr": str(settings.head.address),
            "master-port": vllm.master_port,
            "headless": rank > 0,
        }
    if vllm.tool_call_parser:
        own |= {"tool-call-parser": vllm.tool_call_parser, "enable-auto-tool-choice": True}
    if vllm.reasoning_parser:
        own["reasoning-parser"] = vllm.reasoning_parser
    return [settings.model_path, *flags(own), *flags(vllm.args)]


def ray_args(settings: Settings, node: Node) -> list[str]:
    """Arguments of `ray start` on one node."""
    low, high = RAY_WORKER_PORTS
    own: dict[str, JsonValue] = {
        "block": True,
        "node-ip-address": str(node.address),
        "node-name": node.name,
        "num-gpus": 1,
        "object-store-memory": settings.ray.object_store_memory,
        "min-worker-port": low,
        "max-worker-port": high,
        **{f"{role}-port": port for role, port in RAY_PORTS.items()},
    }
    if node is settings.head:
        own |= {"head": True, "port": settings.ray.port, "include-dashboard": "false"}
    else:
        own["address"] = ray_address(settings)
    return ["start", *flags(own), *flags(node.ray_args)]


def ray_address(settings: Settings) -> str:
    """Address of the Ray head on the fabric, as `host:port`."""
    return f"{settings.head.address}:{settings.ray.port}"


def ray_members(settings: Settings) -> str:
    """The nodes that Ray must have, and no others: `name@address`, separated by commas."""
    return ",".join(f"{node.name}@{node.address}" for node in settings.nodes)


def kept_on_node(settings: Settings) -> list[str]:
    """Names of variables that vLLM's Ray executor must not copy from the server to the other nodes.

    What the program sets for each node, and what a person set for one: the node's own value stands.
    """
    return sorted({*PER_NODE_ENV, *(name for node in settings.nodes for name in node.env)})


def local_url(settings: Settings) -> str:
    """The API as the head itself reaches it."""
    host = settings.vllm.host
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{settings.vllm.port}"  # noqa: S104


def base_env(settings: Settings) -> dict[str, str]:
    """Environment of every container: caches that outlive it, no hub, no telemetry."""
    env = {
        "XDG_CACHE_HOME": CACHE,
        "PYTHONPYCACHEPREFIX": f"{CACHE}/pycache",
        "VLLM_CACHE_ROOT": f"{CACHE}/vllm",
        "VLLM_CONFIG_ROOT": f"{HOME}/config",
        "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/inductor",
        "TRITON_CACHE_DIR": f"{CACHE}/triton",
        "FLASHINFER_WORKSPACE_BASE": CACHE,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "SPARK_ATTEMPTS": str(settings.recovery.attempts),
        "SPARK_HEALTHY_AFTER": str(settings.recovery.healthy_after),
    }
    if settings.ranks_over is Executor.RAY:
        # Ray's memory monitor counts the page cache and the weights as one and kills the engine at 95 %.
        env |= {"RAY_memory_monitor_refresh_ms": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    return env


def fabric_env(node: Node) -> dict[str, str]:
    """Environment that ties one node's processes to its own rails; empty for a node without rails."""
    if not node.rails:
        return {}
    first = node.rails[0]
    env = {
        "VLLM_HOST_IP": str(node.address),
        "GLOO_SOCKET_IFNAME": first.interface,
        "TP_SOCKET_IFNAME": first.interface,
        "NCCL_SOCKET_IFNAME": first.interface,
        "NCCL_IGNORE_CPU_AFFINITY": "1",
    }
    devices = [rail.rdma_device for rail in node.rails if rail.rdma_device]
    if devices:
        # "=" asks for these names exactly; without it NCCL takes every device that starts so.
        env["NCCL_IB_HCA"] = "=" + ",".join(devices)
    if node.gid_index is not None:
        env["NCCL_IB_GID_INDEX"] = str(node.gid_index)
    return env


def ray_env(settings: Settings, node: Node, *, token: bool) -> dict[str, str]:
    """Environment of a node's Ray container.

    Args:
        settings: the deployment.
        node: the node.
        token: whether a Ray token is set; the token itself is an uploaded file.
    """
    env = base_env(settings) | fabric_env(node) | {"RAY_NODE_IP_ADDRESS": str(node.address)}
    # Workers that Ray starts beforehand took 8 GiB on a head, as others measured; vLLM starts its own.
    env["RAY_num_prestart_python_workers"] = "0"
    if token:
        env |= RAY_TOKEN_ENV
    if node is not settings.head:
        env["SPARK_WAIT_FOR"] = ray_address(settings)
    return env | dict(settings.ray.env) | dict(node.env)


def serve_env(settings: Settings, node: Node, *, token: bool) -> dict[str, str]:
    """Environment of the server, or of a rank under `mp`.

    Args:
        settings: the deployment.
        node: the node that it runs on.
        token: whether a Ray token is set.
    """
    env = base_env(settings) | fabric_env(node)
    if settings.ranks_over is Executor.RAY:
        env |= {
            "RAY_NODE_IP_ADDRESS": str(node.address),
            "RAY_ADDRESS": ray_address(settings),
            "SPARK_RAY_NODES": ray_members(settings),
        }
        if token:
            env |= RAY_TOKEN_ENV
    else:
        env |= dict(node.env)
    return env | dict(settings.vllm.env)


def ranks_generation(settings: Settings) -> str:
    """Names what all ranks must agree on under `mp`: none of them may be of another life than the rest."""
    return digest(
        serve_args(settings),
        [
            (node.name, [str(rail.address) for rail in node.rails], serve_env(settings, node, token=False))
            for node in settings.nodes
        ],
    )


def rank_env(settings: Settings, node: Node) -> dict[str, str]:
    """Environment of a rank under `mp`: that of a server, and how it holds on to the other ranks."""
    return serve_env(settings, node, token=False) | {
        "SPARK_RANK": str(settings.nodes.index(node)),
        "SPARK_RANKS": ",".join(each.name for each in settings.nodes),
        "SPARK_GENERATION": ranks_generation(settings),
        "SPARK_LIFELINE": f"{settings.head.address}:{RANKS_PORT}",
        "SPARK_HEALTH": f"{local_url(settings)}/health",
    }


def environment(env: Mapping[str, str]) -> list[str]:
    """Write an environment as Docker takes it, in the order of the names."""
    return [f"{name}={value}" for name, value in sorted(env.items())]


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
