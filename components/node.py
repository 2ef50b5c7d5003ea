"""A DGX Spark: how it is reached, its Docker provider, and what must be true before anything is changed.

- `pulumi_docker.Provider` over `ssh://`, a worker's through the head
- a preflight command
- the volume that its containers share as /tmp: Ray and vLLM meet through sockets there
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pulumi
import pulumi_docker as docker
from pulumi_command import remote

from components import leaf
from components.remote import run, text
from components.settings import Node as NodeSettings
from components.settings import Settings, Ssh

CONNECT_TIMEOUT = 10
"""Seconds for one attempt to reach a node."""
CONNECT = text("../connect.sh")
"""What ssh connects by: Docker's provider opens a connection for each resource, all at once."""


class Node(pulumi.ComponentResource):
    """A Spark that the other components put things on."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        deployment: Settings,
        jump: Node | None = None,
    ) -> None:
        """Connect a node.

        Args:
            settings: the node.
            deployment: the whole deployment.
            jump: the head, if the node is reached through it.
        """
        name = settings.name
        super().__init__("spark-vllm:index:Node", name)
        self.name = name
        self.settings = settings
        self.labels = {
            "spark-vllm.project": pulumi.get_project(),
            "spark-vllm.stack": pulumi.get_stack(),
            "spark-vllm.node": name,
        }
        hop = jump.settings if jump else None
        self.connection = _connection(settings, hop)
        self.provider = docker.Provider(
            f"docker-{name}",
            host=f"ssh://{settings.ssh.user}@{_bracket(settings.ssh.host)}:{settings.ssh.port}",
            context="",
            ssh_opts=ssh_options(settings, hop),
            opts=leaf.step(self),
        )
        self.preflight: remote.Command = run(
            f"preflight-{name}",
            "preflight.sh",
            node=self,
            inputs={
                "NODE": name,
                "GPUS": deployment.container.gpus,
                "DEVICES": "\n".join(deployment.container.devices),
            },
            libraries=["machine.sh"],
            opts=leaf.step(self, after=[jump.preflight] if jump else []),
        )
        self.register_outputs({"preflight": self.preflight.stdout})

    def add_scratch(self, *, after: Sequence[pulumi.Resource]) -> None:
        """Make the volume that its containers share as /tmp.

        Args:
            after: the network: `destroy` may take a worker's address, and the volume must be gone before.
        """
        self.scratch = docker.Volume(
            f"tmp-{self.name}",
            name=f"spark-vllm-{pulumi.get_stack()}-{self.name}-tmp",
            labels=[
                docker.VolumeLabelArgs(label=label, value=value)
                for label, value in sorted(self.labels.items())
            ],
            opts=leaf.on_docker(self, self.provider, after=[self.preflight, *after]),
        )

    @property
    def docker_labels(self) -> list[docker.ContainerLabelArgs]:
        """The labels that mark what is ours, as a container takes them."""
        return [
            docker.ContainerLabelArgs(label=label, value=value)
            for label, value in sorted(self.labels.items())
        ]


def host_key_alias(node: NodeSettings) -> str:
    """Name under which a node's host key is pinned; two nodes may share an address, one behind the other."""
    return f"spark-vllm-{node.name}"


def ssh_options(node: NodeSettings, jump: NodeSettings | None = None) -> list[str]:
    """Options of an `ssh` that trusts exactly the pinned key and reads no file of the operator's machine."""
    alias = host_key_alias(node)
    key = node.ssh.host_key or ""
    options = [
        "-F",
        "none",
        *_o("BatchMode=yes"),
        *_o(f"ConnectTimeout={2 * CONNECT_TIMEOUT if jump else CONNECT_TIMEOUT}"),
        *_o("StrictHostKeyChecking=yes"),
        *_o("UserKnownHostsFile=/dev/null"),
        *_o("GlobalKnownHostsFile=/dev/null"),
        *_o("HostKeyAlgorithms=ssh-ed25519"),
        *_o("LogLevel=ERROR"),
        *_o(f"HostKeyAlias={alias}"),
        *_o(f"KnownHostsCommand=/bin/echo {alias} {key}"),
    ]
    if jump is None:
        options += _o("ProxyCommand=" + shlex.join(["bash", "-c", CONNECT, "connect", "%h", "%p"]))
    else:
        target = "[%h]:%p" if ":" in node.ssh.host else "%h:%p"
        # what the outer ssh must leave for the inner one to expand
        inner = [each.replace("%", "%%") for each in (*ssh_options(jump), _login(jump.ssh))]
        hop = ["ssh", *inner[:-1], "-p", str(jump.ssh.port), "-W", target, inner[-1]]
        options += _o("ProxyCommand=" + shlex.join(hop))
    return options


def _o(option: str) -> list[str]:
    return ["-o", option]


def _login(ssh: Ssh) -> str:
    return f"{ssh.user}@{ssh.host}"


def _bracket(host: str) -> str:
    return "[" + host.replace("%", "%25") + "]" if ":" in host else host


def _connection(node: NodeSettings, jump: NodeSettings | None) -> remote.ConnectionArgs:
    return remote.ConnectionArgs(
        host=node.ssh.host,
        user=node.ssh.user,
        port=node.ssh.port,
        host_key=node.ssh.host_key,
        dial_error_limit=3,
        per_dial_timeout=CONNECT_TIMEOUT,
        proxy=remote.ProxyConnectionArgs(
            host=jump.ssh.host,
            user=jump.ssh.user,
            port=jump.ssh.port,
            host_key=jump.ssh.host_key,
            dial_error_limit=3,
            per_dial_timeout=CONNECT_TIMEOUT,
        )
        if jump
        else None,
    )
