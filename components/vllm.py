"""The vLLM server: its container, the wait until it has loaded, and the proof that it answers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pulumi
import pulumi_docker as docker
from pulumi_command import remote

from components import container, leaf
from components.commandline import (
    kept_on_node,
    local_url,
    rank_env,
    ranks_generation,
    ray_address,
    ray_members,
    serve_args,
    serve_env,
)
from components.node import Node
from components.ray import Cluster, rank_files, ray_files, serve_files
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
        self._settings = settings
        self._over_ray = settings.ranks_over is Executor.RAY
        self.server = self._serve(secrets, head, cluster, after)
        ready = self._wait("ready", head, "vllm", [self.server], health=f"{local_url(settings)}/health")
        # Under mp the server's own /health does not tell whether the other ranks live.
        ranks = [
            self._wait(f"ready-{node.name}", node, f"vllm-{node.name}", [rank, self.server])
            for node, rank in cluster.ranks
        ]
        self.smoke = run(
            "smoke-test",
            "smoke.sh",
            node=head,
            inputs={
                "NODE": head.name,
                "CONTAINER": "vllm",
                "URL": local_url(settings),
                "MODEL_JSON": json.dumps(settings.vllm.served_model_name),
                "WAIT": str(SMOKE_SECONDS),
                "LOAD": str(settings.vllm.ready_timeout),
                "REASONING_PARSER": settings.vllm.reasoning_parser or "",
                "TOOL_PARSER": settings.vllm.tool_call_parser or "",
            },
            secrets={"API_KEY": secrets.api_key} if secrets.api_key is not None else None,
            triggers=[self.server.id],
            opts=leaf.step(self, after=[ready, *ranks]),
            timeout=settings.vllm.ready_timeout + 2 * SMOKE_SECONDS + 30,
        )
        self.load_seconds = value(ready, "load_seconds").apply(lambda text: int(text) if text else None)
        self.endpoint = f"http://{_seen_by_operator(settings)}:{settings.vllm.port}/v1"
        self.register_outputs({"endpoint": self.endpoint, "load_seconds": self.load_seconds})

    def _serve(
        self, secrets: Secrets, head: Node, cluster: Cluster, after: Sequence[pulumi.Resource]
    ) -> docker.Container:
        settings = self._settings
        env, generation = serve_env(settings, head.settings, token=secrets.ray_token is not None), ""
        files = dict(serve_files(secrets))
        if self._over_ray:
            # https://docs.vllm.ai: names listed here are not copied from the driver to the other nodes.
            files |= ray_files(secrets) | {
                "config/ray_non_carry_over_env_vars.json": json.dumps(kept_on_node(settings))
            }
        elif settings.ranks_over is Executor.MP:
            env, generation = rank_env(settings, head.settings), ranks_generation(settings)
            files |= rank_files(secrets)
        return container.run(
            "vllm",
            "vllm",
            node=head,
            settings=settings,
            role="serve" if self._over_ray else "rank",
            command=["vllm", "serve", *serve_args(settings)],
            env=env,
            files=files,
            stands_on=cluster.containers,
            generation=generation,
            parent=self,
            after=[*after, *cluster.ready, *cluster.containers],
        )

    def _wait(
        self,
        name: str,
        node: Node,
        docker_name: str,
        containers: Sequence[docker.Container],
        *,
        health: str = "",
    ) -> remote.Command:
        wait = self._settings.vllm.ready_timeout
        return run(
            name,
            "ready.sh",
            node=node,
            inputs={
                "NODE": node.name,
                "CONTAINER": docker_name,
                "HEALTH": health,
                "WAIT": str(wait),
                "RAY": f"ray-{node.name}" if self._over_ray else "",
                "ADDRESS": ray_address(self._settings) if self._over_ray else "",
                "EXPECT": ray_members(self._settings) if self._over_ray else "",
            },
            triggers=[each.id for each in containers],
            opts=leaf.step(self, after=containers),
            timeout=wait + 60,
        )


def _seen_by_operator(settings: Settings) -> str:
    host = settings.vllm.host
    if host == "0.0.0.0" or ipaddress_is_loopback(host):  # noqa: S104
        return settings.head.ssh.host
    return host
