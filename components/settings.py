"""The configuration of a deployment: every key that may be set, its default and its rules.

This is the only place that reads or checks configuration. `load()` turns the stack's configuration into
a frozen `Settings` and a `Secrets`; a mistake becomes one `pulumi.RunError` that names the key, the stack
file, what is wrong and what would be right. Secrets are Outputs and never pass through pydantic.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import hashlib
import ipaddress
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

import pulumi
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StringConstraints,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

PROJECT = "spark-vllm"
SECRET_KEYS = ("apiKey", "rayToken", "hubToken", "registryPassword")
GPUS_PER_NODE = 1
"""A DGX Spark has one GB10."""

# Flags of `vllm serve` that have a key of their own, or that the program decides.
OWNED_FLAGS: Mapping[str, str] = {
    "model": "model",
    "tensor-parallel-size": "vllm.tensorParallelSize",
    "pipeline-parallel-size": "vllm.pipelineParallelSize",
    "distributed-executor-backend": "vllm.executor",
    "nnodes": "nodes",
    "node-rank": "nodes",
    "master-addr": "nodes[0].rails[0].address",
    "master-port": "vllm.masterPort",
    "headless": "vllm.executor",
    "served-model-name": "vllm.servedModelName",
    "host": "vllm.host",
    "port": "vllm.port",
    "gpu-memory-utilization": "vllm.gpuMemoryUtilization",
    "tool-call-parser": "vllm.toolCallParser",
    "enable-auto-tool-choice": "vllm.toolCallParser",
    "reasoning-parser": "vllm.reasoningParser",
    "api-key": "apiKey",
    "config": "vllm.args",
}
FLAG_ALIASES: Mapping[str, str] = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "n": "nnodes",
    "r": "node-rank",
}
OWNED_RAY_FLAGS: Mapping[str, str] = {
    "head": "nodes",
    "block": "nodes",
    "address": "nodes[0].rails[0].address",
    "node-ip-address": "nodes[].rails[0].address",
    "port": "ray.port",
    "object-store-memory": "ray.objectStoreMemory",
    "include-dashboard": "ray",
    "dashboard-host": "ray",
    "dashboard-port": "ray",
    "num-gpus": "nodes",
    "node-name": "nodes[].name",
    # Fixed, and looked at by the gate before the first stop.
    "node-manager-port": "ray",
    "object-manager-port": "ray",
    "runtime-env-agent-port": "ray",
    "dashboard-agent-grpc-port": "ray",
    "dashboard-agent-listen-port": "ray",
    "metrics-export-port": "ray",
    "ray-client-server-port": "ray",
    "min-worker-port": "ray",
    "max-worker-port": "ray",
    "worker-port-list": "ray",
}
# Variables that the program derives for each node; a second opinion would break the fabric silently.
OWNED_ENV: Mapping[str, str] = {
    "VLLM_HOST_IP": "nodes[].rails[0].address",
    "RAY_NODE_IP_ADDRESS": "nodes[].rails[0].address",
    "GLOO_SOCKET_IFNAME": "nodes[].rails[0].interface",
    "NCCL_SOCKET_IFNAME": "nodes[].rails[0].interface",
    "TP_SOCKET_IFNAME": "nodes[].rails[0].interface",
    "NCCL_IB_HCA": "nodes[].rails[].rdmaDevice",
    "NCCL_IB_GID_INDEX": "nodes[].gidIndex",
    "VLLM_API_KEY": "apiKey",
    "RAY_AUTH_MODE": "rayToken",
    "RAY_AUTH_TOKEN": "rayToken",
    "RAY_AUTH_TOKEN_PATH": "rayToken",
    "RAY_ADDRESS": "ray.port",
    "HF_TOKEN": "hubToken",
    # The list of what Ray's executor may not copy from node to node is read there.
    "VLLM_CONFIG_ROOT": "nodes[].env",
}


def _reject_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not hold a NUL byte, which no command line or environment can carry")
    return value


def _host_key(value: str) -> str:
    kind, _, rest = value.partition(" ")
    blob = rest.split(" ", 1)[0]
    try:
        named = base64.b64decode(blob, validate=True)[4 : 4 + len(kind)].decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        named = ""
    if kind != "ssh-ed25519" or named != kind:
        raise ValueError("must be one line such as `ssh-ed25519 AAAA...` (the node's ed25519 host key)")
    return f"{kind} {blob}"


def _interface_address(value: ipaddress.IPv4Interface) -> ipaddress.IPv4Interface:
    ip, network = value.ip, value.network
    if ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        raise ValueError(f"{ip} cannot be a fabric address: it is loopback, link-local, multicast or 0.0.0.0")
    if network.num_addresses < len(("network", "broadcast", "this", "peer")):
        raise ValueError(f"/{network.prefixlen} leaves no room for a peer: use /30 or wider")
    if ip in (network.network_address, network.broadcast_address):
        raise ValueError(f"{ip} is the network or broadcast address of {network}")
    return value


def _directory(value: str) -> str:
    path = PurePosixPath(value)
    if path == PurePosixPath("/") or ".." in path.parts or "\n" in value:
        raise ValueError("must be a directory such as /home/aurora/models, without ..")
    return str(path)


def _below_another(value: str) -> str:
    if PurePosixPath(value).parent == PurePosixPath("/"):
        raise ValueError("must be a directory below another one, such as /home/aurora/models/name")
    return value


def _ssh_host(value: str) -> str:
    address, _, zone = value.partition("%")
    local = address.lower().startswith("fe80:")
    if local and not zone:
        raise ValueError(
            f"{value} is link-local and leads nowhere without an interface: give that of the machine which "
            f"connects to it, for a worker the head's, as in {value}%enp1s0f0np0"
        )
    if zone and not local:
        raise ValueError(
            f"only a link-local address (fe80::...) has an interface behind it, and {address} is none"
        )
    return value


def _unique(values: Iterable[object], what: str) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise ValueError(f"nodes: {what} {value} is given twice")
        seen.add(value)


def _refuse_owned(given: Iterable[str], owned: Mapping[str, str], what: str) -> None:
    for name in given:
        owner = owned.get(name.replace("_", "-") if what == "flag" else name)
        if owner is not None:
            raise ValueError(f"the {what} {name} is not set here: it follows from the key {owner}")


def _check_flag_value(name: str, value: JsonValue) -> None:
    if value is None:
        raise ValueError(f"--{name} has no value: give one, or true for the flag alone")
    if isinstance(value, str):
        _reject_nul(value)
    if isinstance(value, list):
        for item in value:
            if isinstance(item, (list, dict, bool)) or item is None:
                raise ValueError(f"--{name}: a list may hold strings and numbers only")
            if str(item) == "" or str(item).startswith("-"):
                raise ValueError(f"--{name}: {item!r} in a list would be read as a flag, or as nothing")
            _reject_nul(str(item))


Text = Annotated[str, AfterValidator(_reject_nul)]
NonEmpty = Annotated[Text, StringConstraints(min_length=1)]
NodeName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,30}[a-z0-9]$")]
# Linux: at most 15 bytes, no slash, no white space; names here are further held to what a shell never reads.
InterfaceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,14}$")]
DeviceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}$")]
# As above, or a link-local address with the interface through which it is reached.
SshHost = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}(%[A-Za-z][A-Za-z0-9_.-]{0,14})?$"),
    AfterValidator(_ssh_host),
]
UserName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
HostKey = Annotated[str, AfterValidator(_host_key)]
FabricAddress = Annotated[ipaddress.IPv4Interface, AfterValidator(_interface_address)]
Port = Annotated[int, Field(ge=1, le=65535)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
FlagName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
AbsolutePath = Annotated[Text, StringConstraints(pattern=r"^/[^:]*$")]
Directory = Annotated[AbsolutePath, AfterValidator(_directory)]
Env = Mapping[EnvName, Text]
Flags = Mapping[FlagName, JsonValue]


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


class Ssh(_Section):
    """How the operator's machine reaches a node."""

    host: SshHost
    """Address or name of the node, as seen from the operator's machine, or from the jump host.

    A worker without an address is reached by its link-local one, `fe80::...%<the head's interface>`."""
    user: UserName
    """Login user; a member of the node's `docker` group."""
    port: Port = 22
    """TCP port of the node's SSH server."""
    host_key: HostKey | None = None
    """The node's ed25519 host key, pinned: `ssh-ed25519 AAAA...`. `discover` finds it; `up` needs it."""
    jump: NodeName | None = None
    """Name of the node through which this one is reached: the head."""


class Rail(_Section):
    """One interface of the RoCE cable. A cable shows up as two twins, each on a subnet of its own."""

    interface: InterfaceName
    """Network interface, for example `enp1s0f0np0`."""
    address: FabricAddress
    """Address with prefix, for example `192.168.200.12/24`."""
    rdma_device: DeviceName | None = None
    """RDMA device behind the interface, for example `rocep1s0f0`; NCCL falls back to TCP without it."""


class Node(_Section):
    """A DGX Spark. The first of the list is the head."""

    name: NodeName
    """Name of the node in Pulumi, in container names and in messages."""
    ssh: Ssh
    rails: tuple[Rail, ...] = ()
    """Rails in the same order on every node; the first carries Ray, Gloo and NCCL's bootstrap."""
    env: Env = {}
    """Environment of this node's own container (the Ray process, or the rank under mp)."""
    ray_args: Flags = {}
    """Further flags of this node's `ray start`."""
    gid_index: Annotated[int, Field(ge=0, le=255)] | None = None
    """NCCL_IB_GID_INDEX of this node. Leave it unset: NCCL finds the RoCE v2 entry, and indices move."""

    @property
    def address(self) -> ipaddress.IPv4Address:
        """The node's address on the fabric: that of its first rail."""
        return self.rails[0].address.ip

    @model_validator(mode="after")
    def _rails_are_apart(self) -> Self:
        _unique((rail.interface for rail in self.rails), f"{self.name}: interface")
        for i, rail in enumerate(self.rails):
            for other in self.rails[:i]:
                if rail.address.network.overlaps(other.address.network):
                    raise ValueError(
                        f"node {self.name}: rails {other.interface} and {rail.interface} share the subnet "
                        f"{rail.address.network}; give each twin a subnet of its own"
                    )
        _refuse_owned(self.env, OWNED_ENV, "variable")
        _refuse_owned(self.ray_args, OWNED_RAY_FLAGS, "flag")
        return self


class Network(_Section):
    """The RoCE network between the nodes."""

    manage: bool = True
    """Whether the program sets addresses and MTU that are not as they should be; false only checks them."""
    mtu: Annotated[int, Field(ge=1280, le=9216)] = 9000
    """MTU of every rail, in bytes."""
    take_over: bool = False
    """Whether a netplan file of somebody else that configures a rail is kept aside; false refuses it."""
    remove_on_destroy: bool = False
    """Whether `destroy` undoes what the program configured, once an `up` has run with it."""
    sysfs: AbsolutePath = "/sys"
    """Where the RDMA devices are read; only a lab without RDMA hardware sets it."""


class Distribution(StrEnum):
    """How the image reaches the workers."""

    FABRIC = "fabric"
    REGISTRY = "registry"


class Image(_Section):
    """The container image that holds vLLM."""

    ref: Annotated[
        str,
        StringConstraints(
            pattern=r"^[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
            r"(@sha256:[0-9a-f]{64})?$"
        ),
    ]
    """Image reference, pinned: `name:tag@sha256:...`. `up` refuses one without a digest."""
    distribution: Distribution = Distribution.FABRIC
    """`fabric`: the head pulls and sends it to the workers. `registry`: every node pulls."""
    remove_on_destroy: bool = False
    """Whether `destroy` removes it and its caches from every node, once an `up` has run with it."""
    registry_user: Annotated[str, StringConstraints(pattern=r"^[^\s:]+$")] | None = None
    """User of a private registry; its password or token is the secret `registryPassword`."""

    @property
    def registry(self) -> str:
        """The registry's host and port, as `docker login` takes them."""
        host, slash, _ = self.ref.partition("/")
        return host if slash and (set(host) & {".", ":"} or host == "localhost") else "docker.io"

    @property
    def digest(self) -> str | None:
        """The pin, `sha256:...`, or None."""
        return self.ref.partition("@")[2] or None

    @property
    def local_tag(self) -> str:
        """The tag that containers name: `spark-vllm/<name>:<12 hex digits of the pin>`."""
        repository = re.sub(r":[^/:]*$", "", self.ref.partition("@")[0])
        name = repository.rpartition("/")[2]
        pin = self.digest.removeprefix("sha256:")[:12] if self.digest else "unpinned"
        return f"{PROJECT}/{name}:{pin}"


class HubModel(_Section):
    """A model of the hub at a pinned revision: fetched by the head, sent by it to the workers."""

    repo: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+$")]
    """Repository, for example `Qwen/Qwen3.5-122B-A10B-FP8`."""
    revision: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]*$")] = "main"
    """Commit of the repository (40 hex digits); `up` refuses a branch."""
    root: Directory
    """Directory on every node below which each revision has a folder of its own; older ones stay."""
    remove_on_destroy: bool = False
    """Whether `destroy` removes this revision from every node, once an `up` has run with it."""
    endpoint: Annotated[
        str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._/-]*)?$")
    ] = "https://huggingface.co"
    """Where the hub is, as the head reaches it: another one for a mirror."""

    @field_validator("revision")
    @classmethod
    def _stays_below(cls, value: str) -> str:
        if ".." in PurePosixPath(value).parts:
            raise ValueError("must be a commit or the name of a branch")
        return value

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit."""
        return re.fullmatch(r"[0-9a-f]{40}", self.revision) is not None

    @property
    def mount(self) -> str:
        """Directory of the node that containers see as /models."""
        return self.root

    @property
    def writable(self) -> str:
        """Directory below which the head may write on a worker."""
        return self.root

    @property
    def directory(self) -> str:
        """Directory of the node that holds this revision."""
        return f"{self.root}/{self.repo.replace('/', '--')}/{self.revision}"

    @property
    def present(self) -> str:
        """File that is there when the model is: written last, it lists the files of the revision."""
        return f"{self.directory}/.complete"


class DirectoryModel(_Section):
    """A model that is in a directory of the head already; the workers get what they lack of it."""

    directory: Annotated[Directory, AfterValidator(_below_another)]
    """Directory that holds the model's files, the same on every node. On the head it is never changed."""

    @property
    def mount(self) -> str:
        """Directory of the node that containers see as /models; the whole repository for a hub cache."""
        path = PurePosixPath(self.directory)
        # Snapshots of a hub cache are links into ../../blobs.
        return str(path.parents[1] if path.parent.name == "snapshots" else path.parent)

    @property
    def writable(self) -> str:
        """Directory below which the head may write on a worker."""
        return self.directory

    @property
    def present(self) -> str:
        """File that is there when the model is."""
        return f"{self.directory}/config.json"


def _model_kind(value: object) -> str:
    if isinstance(value, DirectoryModel):
        return "directory"
    return "directory" if isinstance(value, dict) and "directory" in value else "hub"


Model = Annotated[
    Annotated[HubModel, Tag("hub")] | Annotated[DirectoryModel, Tag("directory")],
    Discriminator(_model_kind),
]


class Ray(_Section):
    """Ray, where the executor is `ray`."""

    port: Port = 6379
    """Port of the head's GCS, on the fabric."""
    object_store_memory: Annotated[int, Field(ge=80 * 1024**2)] = 1024**3
    """Object store of each node, in bytes. Ray's own default is 30 % of the memory that the model needs."""
    env: Env = {}
    """Environment of every Ray container."""

    @model_validator(mode="after")
    def _env_is_free(self) -> Self:
        _refuse_owned(self.env, OWNED_ENV, "variable")
        return self


class Executor(StrEnum):
    """What runs vLLM's ranks on the nodes."""

    RAY = "ray"
    MP = "mp"


class Vllm(_Section):
    """The vLLM server."""

    executor: Executor = Executor.RAY
    """`ray`, or `mp`: vLLM's own multi-node mode (vLLM >= 0.11.1), without Ray."""
    served_model_name: NonEmpty
    """Name by which clients ask for the model."""
    host: HostName = "0.0.0.0"  # noqa: S104 - the design's default: the API serves the network, with a key
    """Address of the head on which the API listens."""
    port: Port = 8000
    """Port of the API on the head."""
    master_port: Port = 29501
    """Port on which the ranks meet under `mp`, on the head's fabric address."""
    allow_unauthenticated: bool = False
    """Serve without an API key, in so many words."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=0.95)] = 0.8
    """Share of the unified memory that vLLM takes; 0.85 and more ran out of memory on a Spark."""
    tensor_parallel_size: Annotated[int, Field(ge=1)] | None = None
    """Tensor parallel size; default: one rank on each node. Times pipelineParallelSize it equals the GPUs."""
    pipeline_parallel_size: Annotated[int, Field(ge=1)] = 1
    """Pipeline parallel size."""
    tool_call_parser: NonEmpty | None = None
    """Parser of tool calls, for example `qwen3_coder`; also turns automatic tool choice on."""
    reasoning_parser: NonEmpty | None = None
    """Parser that separates reasoning from the answer, for example `qwen3`."""
    args: Flags = {}
    """Any other flag of `vllm serve`: true is the flag alone, false leaves it out, objects become JSON."""
    env: Env = {}
    """Environment of the server alone (under mp: of every rank)."""
    require_argument_check: bool = False
    """Refuse where a node has too little memory free to check the arguments; false warns and goes on."""
    ready_timeout: Annotated[int, Field(ge=30, le=14400)] = 3600
    """Seconds within which the model must be loaded and answer."""

    @field_validator("args")
    @classmethod
    def _args_are_flags(cls, value: Flags) -> Flags:
        seen: set[str] = set()
        for name, flag_value in value.items():
            canonical = FLAG_ALIASES.get(name, name).replace("_", "-")
            if canonical in seen:
                raise ValueError(f"--{canonical} is given twice")
            seen.add(canonical)
            owner = OWNED_FLAGS.get(canonical)
            if owner is not None:
                raise ValueError(f"--{name} is not set here: it follows from the key {owner}")
            _check_flag_value(name, flag_value)
        return value

    @model_validator(mode="after")
    def _env_is_free(self) -> Self:
        _refuse_owned(self.env, OWNED_ENV, "variable")
        return self


class Container(_Section):
    """What the containers get of the machine."""

    gpus: Literal["all", "none"] = "all"
    """GPUs of the containers; the lab has none."""
    devices: tuple[AbsolutePath, ...] = ("/dev/infiniband",)
    """Devices of the containers; without /dev/infiniband NCCL falls back to TCP."""
    memlock: Annotated[int, Field(ge=-1)] = -1
    """Limit of locked memory, in bytes; -1 is none, which RDMA needs."""


class Recovery(_Section):
    """How containers come back after a crash or a reboot, without an operator."""

    enabled: bool = True
    """Whether containers are started again at all."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """Failed starts in a row after which a container stays down; endless restarts wedge a GB10."""
    healthy_after: Annotated[int, Field(ge=10)] = 900
    """Seconds of running after which earlier failures are forgotten."""


class Settings(_Section):
    """All that may be set, but for secrets."""

    nodes: Annotated[tuple[Node, ...], Field(min_length=1)]
    """The Sparks; the first is the head."""
    network: Network = Network()
    image: Image
    model: Model
    ray: Ray = Ray()
    vllm: Vllm
    container: Container = Container()
    recovery: Recovery = Recovery()

    @property
    def head(self) -> Node:
        """The node that runs the API."""
        return self.nodes[0]

    @property
    def workers(self) -> tuple[Node, ...]:
        """The other nodes."""
        return self.nodes[1:]

    @property
    def tensor_parallel_size(self) -> int:
        """Tensor parallel size, given or derived."""
        gpus = len(self.nodes) * GPUS_PER_NODE
        return self.vllm.tensor_parallel_size or gpus // self.vllm.pipeline_parallel_size

    @property
    def ranks_over(self) -> Executor | None:
        """What carries the ranks from node to node; None for a single node, which needs nothing."""
        return self.vllm.executor if len(self.nodes) > 1 else None

    @property
    def model_path(self) -> str:
        """The model's directory as containers see it; equal on every node."""
        return f"/models/{PurePosixPath(self.model.directory).relative_to(self.model.mount)}"

    @model_validator(mode="after")
    def _nodes_fit(self) -> Self:
        _unique((node.name for node in self.nodes), "node name")
        if "vllm" in (node.name for node in self.nodes):
            raise ValueError("a node cannot be named vllm: that is the server's own name")
        if self.head.ssh.jump is not None:
            raise ValueError(f"the head, {self.head.name}, is reached directly: take out its ssh.jump")
        for node in self.workers:
            if node.ssh.jump not in (None, self.head.name):
                raise ValueError(f"node {node.name}: ssh.jump must be the head, {self.head.name}")
        if len(self.nodes) > 1:
            self._check_fabric()
        gpus = len(self.nodes) * GPUS_PER_NODE
        ranks = self.tensor_parallel_size * self.vllm.pipeline_parallel_size
        if ranks != gpus:
            raise ValueError(
                f"tensor x pipeline parallel size is {self.tensor_parallel_size} x "
                f"{self.vllm.pipeline_parallel_size} = {ranks}, but {len(self.nodes)} nodes have {gpus} GPUs"
            )
        self._check_ports()
        return self

    def _check_fabric(self) -> None:
        counts = {len(node.rails) for node in self.nodes}
        if 0 in counts or len(counts) > 1:
            raise ValueError("several nodes need rails, and every node the same number of them")
        for rails in zip(*(node.rails for node in self.nodes), strict=True):
            networks = {rail.address.network for rail in rails}
            if len(networks) > 1:
                listed = ", ".join(sorted(map(str, networks)))
                raise ValueError(f"rails at the same place of each node must share a subnet: found {listed}")
        _unique((rail.address.ip for node in self.nodes for rail in node.rails), "rail address")
        for node in self.workers:
            if node.ssh.host == self.head.ssh.host and node.ssh.port == self.head.ssh.port:
                raise ValueError(f"node {node.name} has the ssh.host of the head, {node.ssh.host}")

    def _check_ports(self) -> None:
        used = {"vllm.port": self.vllm.port}
        if self.vllm.executor is Executor.RAY:
            used["ray.port"] = self.ray.port
        else:
            used["vllm.masterPort"] = self.vllm.master_port
        taken: dict[int, str] = {port: f"Ray's {role} port" for role, port in RAY_PORTS.items()}
        taken |= {RAY_CLIENT_PORT: "Ray's client port", RANKS_PORT: "the ranks' lifeline"}
        low, high = RAY_WORKER_PORTS
        for key, port in used.items():
            owner = taken.get(port) or ("Ray's worker ports" if low <= port <= high else None)
            if owner:
                raise ValueError(f"{key} {port} is already {owner}: choose another one")
            taken[port] = key


# Fixed, below the ephemeral range (32768 and above on Linux), so that nothing collides at random.
RAY_PORTS: Mapping[str, int] = {
    "node-manager": 6380,
    "object-manager": 6381,
    "runtime-env-agent": 6382,
    "dashboard-agent-grpc": 6383,
    "dashboard-agent-listen": 6384,
    "metrics-export": 6385,
}
RAY_WORKER_PORTS = (20000, 20999)
RAY_CLIENT_PORT = 10001
"""Ray's own default. It cannot be turned off, and naming it fails where the image lacks grpc."""
RANKS_PORT = 6386
"""Where the ranks of `mp` hold on to each other, on the head's fabric address."""


@dataclass(frozen=True)
class Secrets:
    """The secret keys of the stack; None where not set."""

    api_key: pulumi.Output[str] | None
    ray_token: pulumi.Output[str] | None
    hub_token: pulumi.Output[str] | None
    registry_password: pulumi.Output[str] | None


def load() -> tuple[Settings, Secrets]:
    """Read the stack's configuration.

    Returns:
        The settings and the secrets of the stack.

    Raises:
        pulumi.RunError: with every mistake, each naming the key, the stack file and the remedy.
    """
    config = pulumi.Config(PROJECT)
    values = json.loads(os.environ.get("PULUMI_CONFIG", "{}"))
    secret_names = json.loads(os.environ.get("PULUMI_CONFIG_SECRET_KEYS", "[]"))
    prefix = f"{PROJECT}:"
    own = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    secret = {key.removeprefix(prefix) for key in secret_names if key.startswith(prefix)}
    stack_file = f"Pulumi.{pulumi.get_stack()}.yaml"
    try:
        settings = parse(own, secret)
    except ValueError as mistake:
        raise pulumi.RunError(f"{stack_file}: {mistake}") from None
    return settings, Secrets(*(config.get_secret(key) for key in SECRET_KEYS))


def parse(values: Mapping[str, str], secret: Iterable[str] = ()) -> Settings:
    """Check the raw configuration of the project's namespace.

    Args:
        values: key without the namespace to its text; objects as JSON, as Pulumi hands them over.
        secret: the keys that the stack file holds encrypted.

    Raises:
        ValueError: one line for each mistake, naming the key and what would be right.
    """
    secret = set(secret)
    clear = [
        f"{PROJECT}:{key} stands in clear: set it with `pulumi config set --secret {key}`"
        for key in SECRET_KEYS
        if key in values and key not in secret
    ]
    hidden = [
        f"{PROJECT}:{key} holds a secret value, and only {', '.join(SECRET_KEYS)} may be secret"
        for key in sorted(secret)
        if key not in SECRET_KEYS
    ]
    if clear or hidden:
        raise ValueError("; ".join(clear + hidden))
    document = {key: _plain(value) for key, value in values.items() if key not in SECRET_KEYS}
    try:
        settings = Settings.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        raise ValueError("\n  ".join(_explain(item) for item in error.errors())) from None
    if ("registryPassword" in values) != (settings.image.registry_user is not None):
        raise ValueError(
            f"{PROJECT}:image.registryUser and the secret {PROJECT}:registryPassword go together: set both"
        )
    return settings


def require_pins(settings: Settings, secrets: Secrets) -> list[str]:
    """List what `up` needs and a preview can do without.

    Returns:
        One sentence for each missing pin, key or agent, with the command that supplies it; empty if none.
    """
    missing = []
    unpinned = [node.name for node in settings.nodes if node.ssh.host_key is None]
    if unpinned:
        missing.append(
            f"No host key is pinned for {', '.join(unpinned)} (nodes[].ssh.hostKey): "
            "`spark-vllm discover` reads and pins it."
        )
    if settings.image.digest is None:
        missing.append(
            f"image.ref {settings.image.ref} has no digest: add `@sha256:...`, "
            "the digest that `docker pull` prints."
        )
    if isinstance(settings.model, HubModel) and not settings.model.pinned:
        missing.append(
            f"model.revision {settings.model.revision} is a branch, and branches move: give the commit "
            f"(40 hex digits) that `git ls-remote {settings.model.endpoint}/{settings.model.repo} "
            f"{settings.model.revision}` prints."
        )
    open_to_all = not ipaddress_is_loopback(settings.vllm.host) and not settings.vllm.allow_unauthenticated
    if secrets.api_key is None and open_to_all:
        missing.append(
            f"The API listens on {settings.vllm.host} without a key: `pulumi config set --secret apiKey`, "
            "or say vllm.allowUnauthenticated: true."
        )
    if not os.environ.get("SSH_AUTH_SOCK"):
        missing.append(
            "No SSH agent (SSH_AUTH_SOCK is not set): start one and `ssh-add` the key of the nodes."
        )
    return missing


def advise(settings: Settings, secrets: Secrets) -> list[str]:
    """List what is allowed and not wise, one sentence each."""
    if settings.ranks_over is Executor.RAY and secrets.ray_token is None:
        risk = "Ray asks for no token, so who reaches a node can run programs in its containers"
        return [f"{risk}: `pulumi config set --secret rayToken` (32 characters or more; from Ray 2.52 on)."]
    return []


def ipaddress_is_loopback(host: str) -> bool:
    """Whether an address or name is the machine's own loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def digest(*values: object) -> str:
    """Name a value by its meaning: 12 hex digits that do not depend on the order of mappings' keys."""
    canonical = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _plain(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value


def _explain(error: Mapping[str, Any]) -> str:
    # Discriminator tags stand in the location but not in the stack file.
    location = [part for part in error["loc"] if part not in ("hub", "[key]")]
    if location[:1] == ["model"] and location[1:] == ["directory", "directory"]:
        location = ["model", "directory"]
    key = PROJECT + ":" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location).lstrip(".")
    kind, message = error["type"], str(error["msg"]).removeprefix("Value error, ")
    if not location:
        return message
    if kind == "missing":
        return f"{key} is missing"
    if kind == "extra_forbidden":
        return f"{key} is not a key{_suggestion(location)}"
    if kind == "string_type":
        return f"{key} must be a string: put {json.dumps(error['input'])} in quotes"
    given = error.get("input")
    shown = "" if isinstance(given, (dict, list)) else f" (found {json.dumps(given, default=str)})"
    if kind == "string_pattern_mismatch":
        return f"{key} is malformed{shown}: it must match {error['ctx']['pattern']}"
    return f"{key}: {message[:1].lower()}{message[1:]}{shown}"


def _suggestion(location: list[int | str]) -> str:
    section: Any = Settings
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        section = _SECTIONS.get(str(part), section)
    known = [field.alias or name for name, field in section.model_fields.items()]
    if section is Settings:
        known += SECRET_KEYS
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f": did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


_SECTIONS: Mapping[str, type[_Section]] = {
    "nodes": Node,
    "ssh": Ssh,
    "rails": Rail,
    "network": Network,
    "image": Image,
    "model": HubModel,
    "ray": Ray,
    "vllm": Vllm,
    "container": Container,
    "recovery": Recovery,
}
