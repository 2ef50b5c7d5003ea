"""The container image, under one local tag of its pin on every node.

- on the head (on every node, with `distribution: registry`): a pull with progress, and the `RemoteImage`
  that the engine's refresh looks at
- on the workers: sent by the head over the fabric, with a key that is good for nothing else
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_docker as docker
from pulumi_command import remote

from components import leaf
from components.node import Node, host_key_alias
from components.remote import hold, run, text, value
from components.settings import Distribution, Settings

TRANSFER_SECONDS = 3 * 3600


class Image(pulumi.ComponentResource):
    """The image on the head, known before anything else is touched."""

    def __init__(self, settings: Settings, head: Node) -> None:
        """Pull the image on the head.

        Args:
            settings: the deployment.
            head: the node that pulls.
        """
        super().__init__("spark-vllm:index:Image", "image")
        self._settings = settings
        self.on_head = self._pull(head)
        self.on_workers: list[pulumi.Resource] = []
        self.identity = value(self.on_head, "identity")

    def spread(self, head: Node, workers: Sequence[Node], *, after: Sequence[pulumi.Resource]) -> None:
        """Bring the image to the workers.

        Args:
            head: the node that has it.
            workers: the nodes that lack it.
            after: what must be done before: the network, and the gate before the first change.
        """
        if self._settings.image.distribution is Distribution.REGISTRY:
            self.on_workers = [self._pull(worker, after=after) for worker in workers]
        elif workers:
            self.on_workers = self._send(head, workers, after)
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
            },
            opts=leaf.step(self, after=[node.preflight, *after]),
            timeout=TRANSFER_SECONDS,
        )
        docker.RemoteImage(
            f"pulled-{node.name}",
            name=image.ref,
            keep_locally=True,
            opts=leaf.on_docker(self, node.provider, after=[pulled]),
        )
        return pulled

    def _send(
        self, head: Node, workers: Sequence[Node], after: Sequence[pulumi.Resource]
    ) -> list[pulumi.Resource]:
        key = f"spark-vllm-{pulumi.get_stack()}"
        made = hold(
            "fabric-key",
            "fabric-key.sh",
            node=head,
            inputs={"NODE": head.name, "KEY": key},
            opts=leaf.step(self, after=[head.preflight, *after]),
        )
        sent: list[pulumi.Resource] = []
        for worker in workers:
            peer = hold(
                f"fabric-peer-{worker.name}",
                "fabric-peer.sh",
                node=worker,
                inputs={
                    "NODE": worker.name,
                    "KEY": key,
                    "FROM": ",".join(str(rail.address.ip) for rail in head.settings.rails),
                    "RECEIVER": "#!/bin/bash\n" + text("lib.sh") + text("receiver.sh"),
                },
                secrets={"PUBLIC_KEY": value(made, "public_key")},
                opts=leaf.step(self, after=[worker.preflight, made]),
            )
            sent.append(
                run(
                    f"image-{worker.name}",
                    "image-send.sh",
                    node=head,
                    inputs={
                        "NODE": head.name,
                        "KEY": key,
                        "TAG": self._settings.image.local_tag,
                        "PEER": host_key_alias(worker.settings),
                        "PEER_ADDRESS": str(worker.settings.address),
                        "PEER_HOST_KEY": worker.settings.ssh.host_key or "unpinned",
                        "PEER_USER": worker.settings.ssh.user,
                    },
                    opts=leaf.step(self, after=[peer, self.on_head]),
                    timeout=TRANSFER_SECONDS,
                )
            )
        return sent
