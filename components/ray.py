"""What carries vLLM's ranks: Ray on every node, or under `mp` the ranks above 0 on the workers.

- the Ray head's container (not under `mp`), then the workers'
- under `ray` a command that drains members which are not in the settings, before a worker's container starts
- under `ray` a command that waits until exactly the expected nodes are alive

A worker's container is one resource whatever the executor, so that switching replaces it in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_docker as docker

from components import container, leaf
from components.commandline import (
    rank_env,
    ranks_generation,
    ray_address,
    ray_args,
    ray_env,
    ray_members,
    serve_args,
)
from components.node import Node
from components.remote import run, text
from components.settings import Executor, Secrets, Settings

CLUSTER_SECONDS = 300
DRAIN_SECONDS = 180
"""A head takes up to a minute to come up, and half a minute to call a silent node dead."""


class Cluster(pulumi.ComponentResource):
    """The containers that vLLM's server stands on; none for a single node."""

    def __init__(
        self,
        settings: Settings,
        secrets: Secrets,
        nodes: Sequence[Node],
        *,
        after: Sequence[pulumi.Resource],
    ) -> None:
        """Start the executor on every node.

        Args:
            settings: the deployment.
            secrets: its secrets.
            nodes: its nodes, the head first.
            after: what must be done before: the gate before the first stop.
        """
        super().__init__("spark-vllm:index:Cluster", "cluster")
        self._settings = settings
        self._secrets = secrets
        self.containers: list[docker.Container] = []
        self.ready: list[pulumi.Resource] = list(after)
        self.ranks: list[tuple[Node, docker.Container]] = []
        if settings.ranks_over is Executor.RAY:
            self.ready = [self._start_ray(nodes, after)]
        elif settings.ranks_over is Executor.MP:
            self._start_ranks(nodes, after)
        self.register_outputs({})

    def _start_ray(self, nodes: Sequence[Node], after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        head, *workers = nodes
        self.containers = [self._ray_node(head, after, stands_on=[])]
        drained = self._ask(
            "drain",
            head,
            "--drain --missing-ok",
            seconds=DRAIN_SECONDS,
            triggers=[self.containers[0].id],
            after=self.containers,
        )
        self.containers += [
            self._ray_node(worker, [*after, drained], stands_on=self.containers[:1]) for worker in workers
        ]
        return self._ask(
            "cluster-check",
            head,
            "--drain --gpus 1 --stable 3",
            seconds=CLUSTER_SECONDS,
            triggers=[each.id for each in self.containers],
            after=[drained, *self.containers],
        )

    def _ray_node(
        self, node: Node, after: Sequence[pulumi.Resource], *, stands_on: Sequence[docker.Container]
    ) -> docker.Container:
        return container.run(
            node.name,
            f"ray-{node.name}",
            node=node,
            settings=self._settings,
            role="ray",
            command=["ray", *ray_args(self._settings, node.settings)],
            env=ray_env(self._settings, node.settings, token=self._secrets.ray_token is not None),
            files=ray_files(self._secrets),
            stands_on=stands_on,
            parent=self,
            after=[*after, *stands_on],
        )

    def _start_ranks(self, nodes: Sequence[Node], after: Sequence[pulumi.Resource]) -> None:
        for rank, node in enumerate(nodes[1:], start=1):
            self.containers.append(
                container.run(
                    node.name,
                    f"vllm-{node.name}",
                    node=node,
                    settings=self._settings,
                    role="rank",
                    command=["vllm", "serve", *serve_args(self._settings, rank=rank)],
                    env=rank_env(self._settings, node.settings),
                    # Rank 0 alone shows it to clients; here it makes a new key restart all ranks together.
                    files=rank_files(self._secrets),
                    stands_on=[],
                    generation=ranks_generation(self._settings),
                    parent=self,
                    after=after,
                )
            )
            self.ranks.append((node, self.containers[-1]))

    def _ask(  # noqa: PLR0913 - both steps ask the same cluster
        self,
        name: str,
        head: Node,
        options: str,
        *,
        seconds: int,
        triggers: Sequence[pulumi.Input[str]],
        after: Sequence[pulumi.Resource],
    ) -> pulumi.Resource:
        return run(
            name,
            "cluster.sh",
            node=head,
            inputs={
                "NODE": head.name,
                "CONTAINER": f"ray-{head.name}",
                "ADDRESS": ray_address(self._settings),
                "EXPECT": ray_members(self._settings),
                "OPTIONS": options,
                "WAIT": str(seconds),
            },
            triggers=triggers,
            opts=leaf.step(self, after=after),
            timeout=seconds + 30,
        )


def ray_files(secrets: Secrets) -> dict[str, pulumi.Input[str]]:
    """Files that a container needs to talk to Ray."""
    files: dict[str, pulumi.Input[str]] = {"ray_nodes.py": text("ray_nodes.py")}
    if secrets.ray_token is not None:
        files["ray-token"] = secrets.ray_token
    return files


def serve_files(secrets: Secrets) -> Mapping[str, pulumi.Input[str]]:
    """Files that a container needs to serve."""
    return {} if secrets.api_key is None else {"api-key": secrets.api_key}


def rank_files(secrets: Secrets) -> Mapping[str, pulumi.Input[str]]:
    """Files that a rank needs under `mp`."""
    return {**serve_files(secrets), "ranks.py": text("ranks.py")}
