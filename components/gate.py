"""What is checked before the first change, and before the first stop.

- gate A, before the first change: the new arguments, by the new image's own vLLM; and whether its Ray fits
- gate B, before the first stop: on every node image, names and ports; on the head the engine's configuration

What a gate refuses leaves everything that runs running.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pulumi
from pulumi_command import remote

from components import leaf
from components.commandline import serve_args, serve_env
from components.container import cache_volume
from components.image import Image
from components.model import Model
from components.network import Network
from components.node import Node
from components.remote import run, text, value
from components.removal import Removal
from components.settings import (
    RANKS_PORT,
    RAY_CLIENT_PORT,
    RAY_PORTS,
    Distribution,
    Executor,
    Secrets,
    Settings,
    digest,
)
from components.settings import Node as NodeSettings

MIN_FREE_MIB = 6144
"""Memory that must be free for the argument check to run beside a server, in MiB."""


class BeforeChange(pulumi.ComponentResource):
    """Gate A: stands before everything that changes a node."""

    def __init__(self, settings: Settings, secrets: Secrets, nodes: Sequence[Node], image: Image) -> None:
        """Ask the new image about the new arguments.

        Args:
            settings: the deployment.
            secrets: of them whether there is a Ray token.
            nodes: its nodes, all of them reachable.
            image: the image on the head.
        """
        super().__init__("spark-vllm:index:BeforeChange", "before-change")
        after = [image.on_head, *(node.preflight for node in nodes)]
        self.passed = _check_arguments(
            "check-arguments",
            settings,
            nodes[0],
            self,
            after,
            engine="when-present",
            token=secrets.ray_token is not None,
        )
        self.vllm_version = value(self.passed, "vllm")
        self.ray_version = value(self.passed, "ray")
        self.register_outputs({"vllm": self.vllm_version, "ray": self.ray_version})


class BeforeStop(pulumi.ComponentResource):
    """Gate B: stands before every container."""

    def __init__(  # noqa: PLR0913 - one component each
        self,
        settings: Settings,
        nodes: Sequence[Node],
        *,
        network: Network,
        image: Image,
        model: Model,
        removal: Removal,
    ) -> None:
        """Check on every node what its new containers need.

        Args:
            settings: the deployment.
            nodes: its nodes.
            network: the rails.
            image: the image, on every node.
            model: the model's files, on every node.
            removal: what must be deleted after every container.
        """
        super().__init__("spark-vllm:index:BeforeStop", "before-stop")
        share = str(settings.vllm.gpu_memory_utilization) if settings.container.gpus == "all" else ""
        generation = digest(serve_args(settings), serve_env(settings, settings.head, token=False))
        # what the head sends is compared when it arrives
        each_pulls = settings.image.distribution is Distribution.REGISTRY
        images = [image.on_head, *image.on_workers]
        ready = [
            run(
                f"ready-to-stop-{node.name}",
                "ready-to-stop.sh",
                node=node,
                inputs={
                    "NODE": node.name,
                    "ROLE": "head" if node is nodes[0] else "worker",
                    "TAG": settings.image.local_tag,
                    "NAMES": "\n".join(docker_names(settings, node.settings)),
                    "PORTS": "\n".join(f"{port} {what}" for port, what in ports(settings, node.settings)),
                    "PROJECT": pulumi.get_project(),
                    "STACK": pulumi.get_stack(),
                    "SHARE": share,
                    "GENERATION": generation,
                },
                secrets={"IDENTITY": image.identity if each_pulls else ""},
                libraries=["machine.sh"],
                opts=leaf.step(self, after=[*network.links, image_there, model_there, on_destroy]),
            )
            for node, image_there, model_there, on_destroy in zip(
                nodes, images, model.on_nodes, removal.steps, strict=True
            )
        ]
        # Stands for all of them: each container after each node's step would grow as the square of the nodes.
        self.passed: list[pulumi.Resource] = [
            _check_arguments("check-engine", settings, nodes[0], self, ready, engine="true")
        ]
        self.register_outputs({})


def docker_names(settings: Settings, node: NodeSettings) -> list[str]:
    """Names of a node's containers in Docker."""
    names = ["vllm"] if node is settings.head else []
    if settings.ranks_over is Executor.RAY:
        names.insert(0, f"ray-{node.name}")
    elif node is not settings.head:
        names.insert(0, f"vllm-{node.name}")
    return names


def ports(settings: Settings, node: NodeSettings) -> list[tuple[int, str]]:
    """The ports that a node's containers listen on, and what each is for."""
    is_head = node is settings.head
    found = [(settings.vllm.port, "vllm.port")] if is_head else []
    if settings.ranks_over is Executor.RAY:
        found += [(port, f"Ray's {role}") for role, port in RAY_PORTS.items()]
        if is_head:
            found += [(settings.ray.port, "ray.port"), (RAY_CLIENT_PORT, "Ray's client")]
    elif settings.ranks_over is Executor.MP and is_head:
        found += [(settings.vllm.master_port, "vllm.masterPort"), (RANKS_PORT, "the ranks' lifeline")]
    return found


def _check_arguments(  # noqa: PLR0913 - both gates ask the same question
    name: str,
    settings: Settings,
    head: Node,
    parent: pulumi.Resource,
    after: Sequence[pulumi.Resource],
    *,
    engine: str,
    token: bool = False,
) -> remote.Command:
    return run(
        name,
        "gate.sh",
        node=head,
        inputs={
            "NODE": head.name,
            "NAME": f"spark-vllm-{pulumi.get_stack()}-{name}",
            "TAG": settings.image.local_tag,
            "CHECK": text("check_args.py"),
            "REQUEST": json.dumps(serve_args(settings)),
            "EXECUTOR": settings.ranks_over or "none",
            "GPUS": settings.container.gpus,
            "MODELS": settings.model.mount,
            "PRESENT": settings.model.present,
            "DIRECTORY": settings.model.directory,
            "CACHE_VOLUME": cache_volume(settings),
            "ENGINE": engine,
            "LABELS": "\n".join(f"{key}={label}" for key, label in sorted(head.labels.items())),
            "MIN_FREE_MIB": str(MIN_FREE_MIB),
            "REQUIRED": json.dumps(settings.vllm.require_argument_check),
            "TOKEN": json.dumps(token),
            **{
                f"ENV_{variable}": content
                for variable, content in serve_env(settings, head.settings, token=False).items()
            },
        },
        libraries=["machine.sh"],
        opts=leaf.step(parent, after=after),
        timeout=900,
    )
