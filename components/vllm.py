"""The vLLM server: its container, the wait until it has loaded, and the proof that it answers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pulumi

from components import container, leaf
from components.commandline import PER_NODE_ENV, serve_args, serve_env
from components.node import Node
from components.ray import Cluster, ranks_generation, ray_files, serve_files
from components.remote import run, value
from components.settings import Executor, Secrets, Settings, ipaddress_is_loopback

SMOKE_SECONDS = 180


class Vllm(pulumi.ComponentResource):
    """The server on the head."""

    def __init__(
        self,
        settings: Settings,
        secrets: Secrets,
        head: Node,
        cluster: Cluster,
        *,
        after: Sequence[pulumi.Resource],
    ) -> None:
        """Start the server, wait for it, ask it something.

        Args:
            settings: the deployment.
            secrets: its secrets.
            head: the node that serves.
            cluster: the Ray cluster that carries its ranks.
            after: what must be done before: the gate before the first stop.
        """
        super().__init__("spark-vllm:index:Vllm", "vllm")
        token = secrets.ray_token is not None
        over_ray = settings.vllm.executor is Executor.RAY and len(settings.nodes) > 1
        files = {**(ray_files(secrets) if over_ray else {}), **serve_files(secrets)}
        # https://docs.vllm.ai: names listed here are not copied from the driver to the other nodes.
        files["config/ray_non_carry_over_env_vars.json"] = json.dumps(PER_NODE_ENV)
        self.server = container.run(
            "vllm",
            "vllm",
            node=head,
            settings=settings,
            role="serve" if over_ray else "rank",
            command=["vllm", "serve", *serve_args(settings)],
            env=serve_env(settings, head.settings, token=token),
            files=files,
            stands_on=cluster.containers,
            generation="" if over_ray else ranks_generation(settings),
            parent=self,
            after=[*after, *cluster.ready, *cluster.containers],
        )
        url = f"http://{_local(settings.vllm.host)}:{settings.vllm.port}"
        ready = run(
            "ready",
            "ready.sh",
            node=head,
            inputs={
                "NODE": head.name,
                "CONTAINER": "vllm",
                "URL": url,
                "WAIT": str(settings.vllm.ready_timeout),
            },
            triggers=[self.server.id],
            opts=leaf.step(self, after=[self.server]),
            timeout=settings.vllm.ready_timeout + 60,
        )
        self.smoke = run(
            "smoke-test",
            "smoke.sh",
            node=head,
            inputs={
                "NODE": head.name,
                "CONTAINER": "vllm",
                "URL": url,
                "MODEL_JSON": json.dumps(settings.vllm.served_model_name),
                "WAIT": str(SMOKE_SECONDS),
                "REASONING_PARSER": settings.vllm.reasoning_parser or "",
                "TOOL_PARSER": settings.vllm.tool_call_parser or "",
            },
            secrets={"API_KEY": secrets.api_key} if secrets.api_key is not None else None,
            triggers=[self.server.id],
            opts=leaf.step(self, after=[ready]),
            timeout=2 * SMOKE_SECONDS + 30,
        )
        self.load_seconds = value(ready, "load_seconds").apply(lambda text: int(text) if text else None)
        self.endpoint = f"http://{_seen_by_operator(settings)}:{settings.vllm.port}/v1"
        self.register_outputs({"endpoint": self.endpoint, "load_seconds": self.load_seconds})


def _local(host: str) -> str:
    return "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104


def _seen_by_operator(settings: Settings) -> str:
    host = settings.vllm.host
    if host == "0.0.0.0" or ipaddress_is_loopback(host):  # noqa: S104
        return settings.head.ssh.host
    return host
