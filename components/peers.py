"""The way from the head to each worker over the fabric, for files: by SSH, and for nothing else.

- on the head a key made for this purpose
- on each worker one line in authorized_keys that lets this key in, from the head's fabric addresses, for the
  receiver alone (scripts/remote/receiver.sh); the worker's host key is pinned

`destroy` removes both.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components import leaf
from components.node import Node
from components.remote import compose, hold, value
from components.settings import Settings

SSH_PORT = 22
"""Where the operator's machine reaches a worker without the head, its port may be a forwarded one."""


class Peers(pulumi.ComponentResource):
    """The workers' doors for the head; nothing for a single node."""

    def __init__(
        self, settings: Settings, nodes: Sequence[Node], *, after: Sequence[pulumi.Resource]
    ) -> None:
        """Make the key and let it in on every worker.

        Args:
            settings: the deployment.
            nodes: the head, then the workers.
            after: what must be done before: the links.
        """
        super().__init__("spark-vllm:index:Peers", "peers")
        self._key = key_name(pulumi.get_stack())
        self._doors: dict[str, pulumi.Resource] = {}
        head, *workers = nodes
        if workers:
            made = hold(
                "fabric-key",
                "fabric-key.sh",
                node=head,
                inputs={"NODE": head.name, "KEY": self._key},
                opts=leaf.step(self, after=[head.preflight, *after]),
            )
            for worker in workers:
                self._doors[worker.name] = hold(
                    f"fabric-peer-{worker.name}",
                    "fabric-peer.sh",
                    node=worker,
                    inputs={
                        "NODE": worker.name,
                        "KEY": self._key,
                        "FROM": ",".join(str(rail.address.ip) for rail in head.settings.rails),
                        "RECEIVER": _receiver(worker, settings),
                    },
                    libraries=["doors.sh"],
                    secrets={"PUBLIC_KEY": value(made, "public_key")},
                    opts=leaf.step(self, after=[worker.preflight, made]),
                )
        self.register_outputs({})

    def door(self, worker: Node) -> pulumi.Resource:
        """What must be done before the head reaches a worker."""
        return self._doors[worker.name]

    def address(self, worker: Node) -> dict[str, str]:
        """The inputs by which a script on the head reaches a worker: `peer` of scripts/remote/fabric.sh."""
        return {
            "KEY": self._key,
            "PEER": worker.name,
            "PEER_ADDRESS": str(worker.settings.address),
            "PEER_HOST_KEY": worker.settings.ssh.host_key or "unpinned",
            "PEER_USER": worker.settings.ssh.user,
        }

    def port(self, worker: Node) -> dict[str, str]:
        """The SSH port of a worker as the head sees it: a variable whose change sends nothing again."""
        ssh = worker.settings.ssh
        return {"PEER_PORT": str(ssh.port if ssh.jump else SSH_PORT)}


def key_name(stack: str) -> str:
    """The file of the key on the head, and the mark of the lines that let it in."""
    return f"spark-vllm-{stack}"


def _receiver(worker: Node, settings: Settings) -> str:
    inputs = {"NODE": worker.name, "MODELS": settings.model.writable}
    return "#!/bin/bash\n" + compose("receiver.sh", inputs, ["model.sh"])
