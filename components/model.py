"""The model's files on every node."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components import leaf
from components.node import Node
from components.remote import run
from components.settings import Settings


class Model(pulumi.ComponentResource):
    """The model's directory, checked on every node."""

    def __init__(
        self, settings: Settings, nodes: Sequence[Node], *, after: Sequence[pulumi.Resource]
    ) -> None:
        """Check the model's directory on every node.

        Args:
            settings: the deployment.
            nodes: its nodes.
            after: what must be done before.
        """
        super().__init__("spark-vllm:index:Model", "model")
        self.on_nodes: list[pulumi.Resource] = [
            run(
                f"model-{node.name}",
                "model-check.sh",
                node=node,
                inputs={"NODE": node.name, "DIRECTORY": settings.model.directory},
                opts=leaf.step(self, after=[node.preflight, *after]),
            )
            for node in nodes
        ]
        self.register_outputs({})
