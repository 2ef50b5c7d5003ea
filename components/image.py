"""The container image, under one local tag of its pin on every node.

- on the head (on every node, with `distribution: registry`): a pull with progress, and the `RemoteImage`
  that the engine's refresh looks at
- on the workers: sent by the head over the fabric (components/peers.py)
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_docker as docker
from pulumi_command import remote

from components import leaf
from components.node import Node
from components.peers import Peers
from components.remote import run, text, value
from components.settings import Distribution, Secrets, Settings

TRANSFER_SECONDS = 3 * 3600


class Image(pulumi.ComponentResource):
    """The image on the head, known before anything else is touched."""

    def __init__(self, settings: Settings, secrets: Secrets, head: Node) -> None:
        """Pull the image on the head.

        Args:
            settings: the deployment.
            secrets: of them the password of the registry.
            head: the node that pulls.
        """
        super().__init__("spark-vllm:index:Image", "image")
        self._settings = settings
        self._password = secrets.registry_password
        self.on_head = self._pull(head)
        self.on_workers: list[pulumi.Resource] = []
        self.identity = value(self.on_head, "identity")

    def spread(self, nodes: Sequence[Node], peers: Peers, *, after: Sequence[pulumi.Resource]) -> None:
        """Bring the image to the workers.

        Args:
            nodes: the head, which has it, then the workers.
            peers: the head's way to the workers.
            after: what must be done before: the network, and the gate before the first change.
        """
        head, *workers = nodes
        if self._settings.image.distribution is Distribution.REGISTRY:
            self.on_workers = [self._pull(worker, after=after) for worker in workers]
        else:
            self.on_workers = self._send(head, workers, peers, after)
        self.register_outputs({"identity": self.identity})

    def _pull(self, node: Node, *, after: Sequence[pulumi.Resource] = ()) -> remote.Command:
        image = self._settings.image
        pulled = run(
            f"image-{node.name}",
            "image-pull.sh",
            node=node,
            inputs={
                "NODE": node.name,
                "REF": image.ref,
                "DIGEST": image.digest or "unpinned",
                "TAG": image.local_tag,
                "REGISTRY": image.registry,
                "REGISTRY_USER": image.registry_user or "",
            },
            secrets={"REGISTRY_PASSWORD": self._password} if self._password else None,
            opts=leaf.step(self, after=[node.preflight, *after]),
            timeout=TRANSFER_SECONDS,
            libraries=["registry.sh"],
        )
        docker.RemoteImage(
            f"pulled-{node.name}",
            name=image.ref,
            keep_locally=True,
            opts=leaf.on_docker(self, node.provider, after=[pulled]),
        )
        return pulled

    def _send(
        self, head: Node, workers: Sequence[Node], peers: Peers, after: Sequence[pulumi.Resource]
    ) -> list[pulumi.Resource]:
        return [
            run(
                f"image-{worker.name}",
                "image-send.sh",
                libraries=["fabric.sh"],
                node=head,
                inputs={
                    "NODE": head.name,
                    "TAG": self._settings.image.local_tag,
                    "LAYERS_PROGRAM": text("image_layers.py"),
                    **peers.address(worker),
                },
                secrets=peers.port(worker),
                opts=leaf.step(self, after=[peers.door(worker), self.on_head, *after]),
                timeout=TRANSFER_SECONDS,
            )
            for worker in workers
        ]
