"""A container of the deployment: what all of them have in common, written once and in full.

Optional values that Docker would fill in are all given: leaving one out later makes no diff, so the old
value would stay. Every container shares the node's network, IPC and PID namespaces, since vLLM and Ray
find each other through them; none is privileged, and of root's capabilities each has those for files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_docker as docker

from components import leaf
from components.commandline import CACHE, HOME, environment
from components.node import Node
from components.remote import text
from components.settings import Settings, digest

GRACE_SECONDS = 30
LOG_SIZE = "50m"
LOG_FILES = "3"
CAPABILITIES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_NET_BIND_SERVICE")
"""What root keeps in a container: files of any owner, and a port below 1024."""


def cache_volume(settings: Settings) -> str:
    """Name of the volume that keeps an image's caches on a node; two images never share one."""
    return f"spark-vllm-cache-{digest(settings.image.local_tag)}"


def run(  # noqa: PLR0913 - the parts that differ between containers, and no others
    name: str,
    docker_name: str,
    *,
    node: Node,
    settings: Settings,
    role: str,
    command: Sequence[str],
    env: Mapping[str, str],
    files: Mapping[str, pulumi.Input[str]],
    stands_on: Sequence[docker.Container],
    parent: pulumi.Resource,
    after: Sequence[pulumi.Resource],
    generation: str = "",
) -> docker.Container:
    """Run a container.

    Args:
        name: logical name.
        docker_name: name in Docker, fixed.
        node: where it runs.
        settings: the deployment.
        role: first argument of the entry script: `ray`, `rank` or `serve`.
        command: the command line that the entry script runs.
        env: its environment.
        files: further files below /spark, some of them secret: name to content.
        stands_on: containers whose replacement must replace this one, in the order of the node list.
        parent: the component.
        after: what must be done before.
        generation: a name whose change must replace this container, beyond what it stands on.
    """
    return docker.Container(
        name,
        name=docker_name,
        image=settings.image.local_tag,
        entrypoints=["/bin/bash", f"{HOME}/entry.sh"],
        command=[role, *command],
        envs=environment(env),
        uploads=[
            docker.ContainerUploadArgs(file=f"{HOME}/{file}", content=content, permissions="0600")
            for file, content in sorted({"entry.sh": text("entry.sh"), **files}.items())
        ],
        mounts=[
            docker.ContainerMountArgs(
                type="bind", source=settings.model.mount, target="/models", read_only=True
            ),
            docker.ContainerMountArgs(type="volume", source=cache_volume(settings), target=CACHE),
            docker.ContainerMountArgs(type="volume", source=node.scratch.name, target="/tmp"),  # noqa: S108
        ],
        labels=node.docker_labels,
        log_driver="json-file",
        log_opts=_log_options(docker_name, node, settings, stands_on, generation),
        network_mode="host",
        ipc_mode="host",
        pid_mode="host",
        gpus=None if settings.container.gpus == "none" else settings.container.gpus,
        devices=[
            docker.ContainerDeviceArgs(host_path=device, container_path=device, permissions="rwm")
            for device in settings.container.devices
        ],
        ulimits=[
            docker.ContainerUlimitArgs(
                name="memlock", soft=settings.container.memlock, hard=settings.container.memlock
            )
        ],
        # Docker adds the second by itself where the IPC or PID namespace is the host's.
        security_opts=["no-new-privileges", "label=disable"],
        capabilities=docker.ContainerCapabilitiesArgs(adds=list(CAPABILITIES), drops=["ALL"]),
        user="0:0",
        working_dir="/",
        init=False,
        must_run=True,
        restart="on-failure" if settings.recovery.enabled else "no",
        stop_signal="SIGTERM",
        stop_timeout=GRACE_SECONDS,
        destroy_grace_seconds=GRACE_SECONDS,
        opts=leaf.container(parent, node.provider, after=after),
    )


def _log_options(
    docker_name: str,
    node: Node,
    settings: Settings,
    stands_on: Sequence[docker.Container],
    generation: str,
) -> pulumi.Output[dict[str, str]]:
    rails = digest([rail.model_dump(mode="json") for rail in node.settings.rails], settings.network.mtu)

    def options(ids: list[str]) -> dict[str, str]:
        tag = "/".join(filter(None, [docker_name, rails, generation, *(each[:12] for each in ids)]))
        return {"max-size": LOG_SIZE, "max-file": LOG_FILES, "tag": tag}

    return pulumi.Output.all(*(container.id for container in stands_on)).apply(options)
