"""The model's files, the same on every node.

- on the head: a revision of the hub, fetched by the image's own huggingface_hub and verified by the hub's
  hashes; or a directory that is there already, verified by its index and the files' own headers
- on the workers: what they lack of it, sent by the head over the fabric, then compared file by file

A server never has its files changed underneath, and what is there already is not fetched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import pulumi
from pulumi_command import remote

from components import leaf
from components.node import Node
from components.peers import Peers
from components.remote import run, text
from components.settings import HubModel, Secrets, Settings, digest

FETCH_SECONDS = 24 * 3600
SEND_SECONDS = 3 * 3600
CHECK_SECONDS = 3600
RESERVE_MIB = 2048
"""Disk that stays free on every node, in MiB."""


class Model(pulumi.ComponentResource):
    """The model on every node."""

    def __init__(
        self,
        settings: Settings,
        secrets: Secrets,
        nodes: Sequence[Node],
        peers: Peers,
        *,
        after: Sequence[pulumi.Resource],
    ) -> None:
        """Bring the model to every node.

        Args:
            settings: the deployment.
            secrets: its secrets, of which the hub's token is used.
            nodes: the head, then the workers.
            peers: the head's way to the workers.
            after: what must be done before anything is changed on the head.
        """
        super().__init__("spark-vllm:index:Model", "model")
        self._settings = settings
        head, *workers = nodes
        after = [head.preflight, *after]
        if isinstance(settings.model, HubModel):
            manifest = settings.model.present
            on_head = self._fetch(settings.model, secrets, head, after)
        else:
            manifest = f".cache/spark-vllm/model-{digest(settings.model.directory)}"
            on_head = self._check(head, manifest if workers else "", after)
        self.on_nodes: list[pulumi.Resource] = [
            on_head,
            *(self._send(head, worker, peers, manifest, on_head) for worker in workers),
        ]
        self.register_outputs({})

    def _fetch(
        self, model: HubModel, secrets: Secrets, head: Node, after: Sequence[pulumi.Resource]
    ) -> remote.Command:
        return run(
            f"model-{head.name}",
            "model-fetch.sh",
            libraries=["model.sh"],
            node=head,
            inputs={
                "NODE": head.name,
                "REPO": model.repo,
                "REVISION": model.revision,
                "ENDPOINT": model.endpoint,
                "ROOT": model.root,
                "DIRECTORY": model.directory,
                "RESERVE_MIB": str(RESERVE_MIB),
                "HUB": text("hub.py"),
                "NAME": f"spark-vllm-{pulumi.get_stack()}-fetch",
                "LABELS": "\n".join(f"{key}={label}" for key, label in sorted(head.labels.items())),
            },
            # Another image or token is no reason to look at the files again.
            secrets={"TAG": self._settings.image.local_tag, "TOKEN": secrets.hub_token or ""},
            opts=leaf.step(self, after=after),
            timeout=FETCH_SECONDS,
        )

    def _check(self, head: Node, manifest: str, after: Sequence[pulumi.Resource]) -> remote.Command:
        return run(
            f"model-{head.name}",
            "model-check.sh",
            libraries=["model.sh"],
            node=head,
            inputs={
                "NODE": head.name,
                "DIRECTORY": self._settings.model.directory,
                "MANIFEST": manifest,
            },
            opts=leaf.step(self, after=after),
            timeout=CHECK_SECONDS,
        )

    def _send(
        self, head: Node, worker: Node, peers: Peers, manifest: str, on_head: remote.Command
    ) -> remote.Command:
        model = self._settings.model
        return run(
            f"model-{worker.name}",
            "model-send.sh",
            libraries=["fabric.sh", "model.sh"],
            node=head,
            inputs={
                "NODE": head.name,
                "DIRECTORY": model.directory,
                "FOLDER": str(PurePosixPath(model.directory).relative_to(model.writable)),
                "MANIFEST": manifest,
                "OURS": "yes" if isinstance(model, HubModel) else "no",
                "RESERVE_MIB": str(RESERVE_MIB),
                **peers.address(worker),
            },
            secrets=peers.port(worker),
            opts=leaf.step(self, after=[peers.door(worker), on_head]),
            timeout=SEND_SECONDS,
        )
