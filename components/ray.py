"""Ray on every node, and the check that all of them are one cluster.

- the head's container, then the workers'
- a command that waits until exactly the expected nodes are alive
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_docker as docker

from components import container, leaf
from components.commandline import ray_address, ray_args, ray_env
from components.node import Node
from components.remote import run, text
from components.settings import Secrets, Settings

CLUSTER_SECONDS = 300


class Cluster(pulumi.ComponentResource):
    """The Ray cluster that carries vLLM's ranks; nothing for a single node."""

    def __init__(
        self,
        settings: Settings,
        secrets: Secrets,
        nodes: Sequence[Node],
        *,
        after: Sequence[pulumi.Resource],
    ) -> None:
        """Start Ray.

        Args:
            settings: the deployment.
            secrets: its secrets.
            nodes: its nodes, the head first.
            after: what must be done before: the gate before the first stop.
        """
        super().__init__("spark-vllm:index:Cluster", "cluster")
        self.containers: list[docker.Container] = []
        self.ready: list[pulumi.Resource] = list(after)
        if len(nodes) > 1:
            self._start(settings, secrets, nodes, after)
        self.register_outputs({})

    def _start(
        self, settings: Settings, secrets: Secrets, nodes: Sequence[Node], after: Sequence[pulumi.Resource]
    ) -> None:
        for node in nodes:
            head = self.containers[:1]
            self.containers.append(
                container.run(
                    node.name,
                    f"ray-{node.name}",
                    node=node,
                    settings=settings,
                    role="ray",
                    command=["ray", *ray_args(settings, node.settings)],
                    env=ray_env(settings, node.settings, token=secrets.ray_token is not None),
                    files=ray_files(secrets),
                    stands_on=head,
                    parent=self,
                    after=[*after, *head],
                )
            )
        self.ready = [
            run(
                "cluster-check",
                "cluster.sh",
                node=nodes[0],
                inputs={
                    "NODE": nodes[0].name,
                    "CONTAINER": f"ray-{nodes[0].name}",
                    "ADDRESS": ray_address(settings),
                    "EXPECT": ",".join(str(node.settings.address) for node in nodes),
                    "WAIT": str(CLUSTER_SECONDS),
                },
                triggers=[each.id for each in self.containers],
                opts=leaf.step(self, after=self.containers),
                timeout=CLUSTER_SECONDS + 30,
            )
        ]


def ray_files(secrets: Secrets) -> dict[str, pulumi.Input[str]]:
    """Files that a container needs to talk to Ray."""
    files: dict[str, pulumi.Input[str]] = {"ray_nodes.py": text("ray_nodes.py")}
    if secrets.ray_token is not None:
        files["ray-token"] = secrets.ray_token
    return files
