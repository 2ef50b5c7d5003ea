"""What `destroy` removes besides what it made: the image, its caches and the model, if the settings say so.

They are dear to fetch and to fill, so by default they stay, and `spark-vllm prune` removes what nothing uses.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components import leaf
from components.container import cache_volume
from components.node import Node
from components.remote import hold
from components.settings import HubModel, Settings


class Removal(pulumi.ComponentResource):
    """One step for each node that does nothing until it is deleted."""

    def __init__(
        self, settings: Settings, nodes: Sequence[Node], *, after: Sequence[pulumi.Resource]
    ) -> None:
        """Stand between the network and the containers, so that it comes after these on `destroy`.

        Args:
            settings: the deployment.
            nodes: its nodes.
            after: the links: a removed network would cut off a worker.
        """
        super().__init__("spark-vllm:index:Removal", "removal")
        model = settings.model
        removes_model = isinstance(model, HubModel) and model.remove_on_destroy
        # Also where nothing is to be removed: a deleted resource would run as it was recorded.
        self.steps: list[pulumi.Resource] = [
            hold(
                f"on-destroy-{node.name}",
                "removal.sh",
                node=node,
                inputs={
                    "NODE": node.name,
                    "TAG": settings.image.local_tag if settings.image.remove_on_destroy else "",
                    "CACHE_VOLUME": cache_volume(settings) if settings.image.remove_on_destroy else "",
                    "MODEL": model.directory if removes_model else "",
                },
                libraries=["model.sh"],
                opts=leaf.step(self, after=[node.preflight, *after]),
            )
            for node in nodes
        ]
        self.register_outputs({})
