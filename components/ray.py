"""What carries vLLM's ranks: Ray on every node, or under `mp` the ranks above 0 on the workers.

- the Ray head's container (not under `mp`), then the workers'
- under `ray` a command that waits until exactly the expected nodes are alive

A worker's container is one resource whatever the executor, so that switching replaces it in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_docker as docker

from components import container, leaf
from components.commandline import ray_address, ray_args, ray_env, serve_args, serve_env
from components.node import Node
from components.remote import run, text
from components.settings import Executor, Secrets, Settings, digest

CLUSTER_SECONDS = 300


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
        if len(nodes) > 1:
            if settings.vllm.executor is Executor.RAY:
                self._start_ray(nodes, after)
                self.ready = [self._check(nodes)]
            else:
                self._start_ranks(nodes, after)
        self.register_outputs({})

    def _start_ray(self, nodes: Sequence[Node], after: Sequence[pulumi.Resource]) -> None:
        for node in nodes:
            head = self.containers[:1]
            self.containers.append(
                container.run(
                    node.name,
                    f"ray-{node.name}",
                    node=node,
                    settings=self._settings,
                    role="ray",
                    command=["ray", *ray_args(self._settings, node.settings)],
                    env=ray_env(self._settings, node.settings, token=self._secrets.ray_token is not None),
                    files=ray_files(self._secrets),
                    stands_on=head,
                    parent=self,
                    after=[*after, *head],
                )
            )

    def _start_ranks(self, nodes: Sequence[Node], after: Sequence[pulumi.Resource]) -> None:
        for rank, node in enumerate(nodes[1:], start=1):
            env = serve_env(self._settings, node.settings, token=False)
            self.containers.append(
                container.run(
                    node.name,
                    f"vllm-{node.name}",
                    node=node,
                    settings=self._settings,
                    role="rank",
                    command=["vllm", "serve", *serve_args(self._settings, rank=rank)],
                    env=env,
                    # Rank 0 alone shows it to clients; here it makes a new key restart all ranks together.
                    files=serve_files(self._secrets),
                    stands_on=[],
                    generation=ranks_generation(self._settings),
                    parent=self,
                    after=after,
                )
            )

    def _check(self, nodes: Sequence[Node]) -> pulumi.Resource:
        head = nodes[0]
        return run(
            "cluster-check",
            "cluster.sh",
            node=head,
            inputs={
                "NODE": head.name,
                "CONTAINER": f"ray-{head.name}",
                "ADDRESS": ray_address(self._settings),
                "EXPECT": ",".join(str(node.settings.address) for node in nodes),
                "WAIT": str(CLUSTER_SECONDS),
            },
            triggers=[each.id for each in self.containers],
            opts=leaf.step(self, after=self.containers),
            timeout=CLUSTER_SECONDS + 30,
        )


def ranks_generation(settings: Settings) -> str:
    """Names what all ranks must agree on under `mp`: none of them may be of another life than the rest."""
    return digest(serve_args(settings), [serve_env(settings, node, token=False) for node in settings.nodes])


def ray_files(secrets: Secrets) -> dict[str, pulumi.Input[str]]:
    """Files that a container needs to talk to Ray."""
    files: dict[str, pulumi.Input[str]] = {"ray_nodes.py": text("ray_nodes.py")}
    if secrets.ray_token is not None:
        files["ray-token"] = secrets.ray_token
    return files


def serve_files(secrets: Secrets) -> Mapping[str, pulumi.Input[str]]:
    """Files that a container needs to serve."""
    return {} if secrets.api_key is None else {"api-key": secrets.api_key}
