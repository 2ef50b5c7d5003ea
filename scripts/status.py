"""`status`: one screen that says how a deployment is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import asyncssh
import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from components.commandline import ray_address, ray_members
from components.remote import pairs
from components.settings import PROJECT, Executor, Node
from scripts import containers, ssh
from scripts.api import api, refusal
from scripts.console import out
from scripts.containers import SERVER, Container
from scripts.nodes import Connections, connected
from scripts.stack import DEFAULT, AsJson, ConfigFile, Stack, StackName, load
from scripts.units import GIB, KIB

COMPLETION_SECONDS = 60
SAMPLE_SECONDS = 0.5


@dataclass(frozen=True)
class Link:
    """A rail as the kernel has it; speed in Mb/s, 0 where unknown."""

    interface: str
    state: str
    mtu: int
    speed: int
    address: str

    @classmethod
    def read(cls, line: str) -> Link:
        """Read what status.sh prints of it."""
        interface, state, mtu, speed, address = line.split()
        return cls(interface, state, int(mtu), max(int(speed), 0), address)


@dataclass
class NodeStatus:
    """A node; memory in bytes. `fault` says why nothing is known of it."""

    name: str
    fault: str = ""
    memory_total: int = 0
    memory_available: int = 0
    rails: list[Link] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    ray_nodes: list[str] = field(default_factory=list)
    ray_fault: str = ""
    last_line: str = ""

    def take(self, out: str) -> None:
        """Read what status.sh printed."""
        self.containers = containers.read(out)
        for key, value in pairs(out):
            if key == "rail":
                self.rails.append(Link.read(value))
            elif key in ("memory_total_kib", "memory_available_kib"):
                setattr(self, key.removesuffix("_kib"), int(value) * KIB)
            elif key == "nodes":
                self.ray_nodes = [member.partition("@")[0] for member in value.split(",")]
            elif key in ("ray_fault", "last_line"):
                setattr(self, key, value)


@dataclass
class Server:
    """The server, asked through the head.

    Attributes:
        answers: Whether an authenticated completion came back.
        fault: Why not.
        completion_seconds: Time of a completion of one token.
        running: Requests that are worked on.
        waiting: Requests that wait.
        kv_cache_usage: Share of the KV cache in use, 0 to 1.
        generation_tokens_per_second: Over the last interval, all requests together.
        prompt_tokens_per_second: The same for prompts.
    """

    answers: bool = False
    fault: str = ""
    completion_seconds: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_cache_usage: float | None = None
    generation_tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None


@dataclass
class Status:
    """The whole of it, as `--json` prints it."""

    stack: str
    model: str
    endpoint: str | None
    executor: str
    load_seconds: int | None
    server: Server
    nodes: list[NodeStatus]

    @property
    def healthy(self) -> bool:
        """Whether all is as it should be: it answers, and every node, rail and container is up."""
        nodes_fine = all(
            not node.fault
            and not node.ray_fault
            and all(rail.state == "up" for rail in node.rails)
            and all(each.state == "running" for each in node.containers)
            for node in self.nodes
        )
        return self.server.answers and nodes_fine


Sample = tuple[float, Mapping[str, float]]
"""When /metrics was read, and its numbers."""


def status(
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    watch: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="Look again so often, in place, until Ctrl-C."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long the completion may take.")
    ] = COMPLETION_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Show nodes, links, containers, Ray and the server on one screen.

    The server is asked for a completion of one token, with the API key. Exit status: 0 if it answers and all
    nodes, rails and containers are up, else 1.
    """
    if watch is not None and as_json:
        raise typer.BadParameter("--watch is for people: ask again and again for --json")
    deployment = load(stack, config_file)
    found = asyncio.run(
        _watch(deployment, watch, timeout) if watch is not None else _once(deployment, timeout)
    )
    if as_json:
        print(json.dumps({"healthy": found.healthy, **asdict(found)}, indent=2))
    elif watch is None:
        out(tables=True).print(screen(found))
    if not found.healthy:
        raise typer.Exit(1)


async def _once(stack: Stack, patience: float) -> Status:
    # pulumi is asked while the nodes are connected to; what it opens once, it need not open again
    known = asyncio.gather(asyncio.to_thread(stack.outputs), asyncio.to_thread(stack.secret, "apiKey"))
    async with connected(stack.settings.nodes) as links:
        outputs, _ = await known
        return (await look(stack, outputs, links, None, patience=patience))[0]


async def _watch(stack: Stack, seconds: float, patience: float) -> Status:
    outputs, last, found = stack.outputs(), None, None
    with Live(console=out(tables=True), auto_refresh=False, screen=False) as live:
        try:
            while True:
                # connected anew each time: a node may have been restarted
                async with connected(stack.settings.nodes) as links:
                    found, last = await look(stack, outputs, links, last, patience=patience)
                live.update(screen(found), refresh=True)
                await asyncio.sleep(seconds)
        except (KeyboardInterrupt, asyncio.CancelledError):
            if found is None:
                raise
            return found


async def look(
    stack: Stack, outputs: Mapping[str, Any], links: Connections, last: Sample | None, *, patience: float
) -> tuple[Status, Sample | None]:
    """Ask every node and the server, side by side.

    Args:
        stack: The stack.
        outputs: Its outputs.
        links: Its nodes' connections.
        last: The numbers of /metrics some time ago, for what is told per second.
        patience: Seconds that the completion may take.

    Returns:
        How it is, and the numbers of now.
    """
    settings = stack.settings
    (server, sample), nodes = await asyncio.gather(
        _server(stack, links[settings.head.name], last, patience),
        asyncio.gather(*(_node(stack, node, links) for node in settings.nodes)),
    )
    return Status(
        stack=stack.name,
        model=settings.vllm.served_model_name,
        endpoint=outputs.get("endpoint"),
        executor=str(settings.ranks_over or "none"),
        load_seconds=outputs.get("loadSeconds"),
        server=server,
        nodes=nodes,
    ), sample


async def _node(stack: Stack, node: Node, links: Connections) -> NodeStatus:
    found, link, settings = NodeStatus(node.name), links[node.name], stack.settings
    if isinstance(link, ssh.UnreachableError):
        found.fault = str(link)
        return found
    is_head = node is settings.head
    over_ray = is_head and settings.ranks_over is Executor.RAY
    inputs = {
        "NODE": node.name,
        "PROJECT": PROJECT,
        "STACK": stack.name,
        "RAILS": " ".join(rail.interface for rail in node.rails),
        "RAY": f"ray-{node.name}" if over_ray else "",
        "ADDRESS": ray_address(settings) if over_ray else "",
        "EXPECT": ray_members(settings) if over_ray else "",
        "SERVER": SERVER if is_head else "",
    }
    try:
        found.take(await ssh.run(link, "status.sh", inputs, libraries=["containers.sh", "machine.sh"]))
    except ssh.UnreachableError as error:
        found.fault = str(error)
    return found


async def _server(
    stack: Stack,
    head: asyncssh.SSHClientConnection | ssh.UnreachableError,
    last: Sample | None,
    patience: float,
) -> tuple[Server, Sample | None]:
    found = Server()
    if isinstance(head, ssh.UnreachableError):
        found.fault = "the head is out of reach"
        return found, None
    request = {
        "model": stack.settings.vllm.served_model_name,
        "max_tokens": 1,
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    sample: Sample | None = None
    async with api(stack, head, patience=patience) as client:
        try:
            if last is None:
                last = await _metrics(client)
            began = time.monotonic()
            response = await client.post("/v1/chat/completions", json=request)
            found.answers = response.status_code == httpx.codes.OK
            if found.answers:
                found.completion_seconds = round(time.monotonic() - began, 3)
            else:
                found.fault = refusal(response)
            await asyncio.sleep(max(0.0, last[0] + SAMPLE_SECONDS - time.monotonic()))
            sample = await _metrics(client)
            _rate(found, last, sample)
        except httpx.TimeoutException:
            found.fault = f"no answer within {patience:g} s"
        except httpx.HTTPError:
            found.fault = "nothing answers on the API's port"
    return found, sample


async def _metrics(client: httpx.AsyncClient) -> Sample:
    text = (await client.get("/metrics")).text
    numbers: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            numbers[sample.name] = numbers.get(sample.name, 0.0) + sample.value
    return time.monotonic(), numbers


def _rate(server: Server, before: Sample, after: Sample) -> None:
    now, seconds = after[1], after[0] - before[0]
    if "vllm:num_requests_running" in now:
        server.running = int(now["vllm:num_requests_running"])
        server.waiting = int(now.get("vllm:num_requests_waiting", 0))
    server.kv_cache_usage = now.get("vllm:kv_cache_usage_perc", now.get("vllm:gpu_cache_usage_perc"))
    for kind in ("generation", "prompt"):
        name = f"vllm:{kind}_tokens_total"
        if name in now and name in before[1]:
            # a server that was started in between counts from zero
            rate = max(0.0, now[name] - before[1][name]) / seconds
            setattr(server, f"{kind}_tokens_per_second", round(rate, 1))


def screen(found: Status) -> RenderableType:
    """The screen for a person."""
    return Group(_headline(found), _numbers(found), _nodes(found), *_faults(found))


def _headline(found: Status) -> Text:
    server = found.server
    state = (
        ("serving", "bold green")
        if found.healthy
        else ("serving, with faults", "bold yellow")
        if server.answers
        else ("not serving", "bold red")
    )
    where = f" at {found.endpoint}" if found.endpoint else ", not deployed yet"
    line = Text.assemble((f"{found.stack}: ", "bold"), state, f"  {found.model}{where}")
    if server.completion_seconds is not None:
        line.append(f"  (a completion took {server.completion_seconds:.2f} s)", style="dim")
    return line


def _numbers(found: Status) -> Text:
    server, parts = found.server, []
    if server.running is not None:
        parts.append(f"requests {server.running} running, {server.waiting} waiting")
    if server.kv_cache_usage is not None:
        parts.append(f"KV cache {server.kv_cache_usage:.0%}")
    if server.generation_tokens_per_second is not None:
        parts.append(
            f"tokens/s {server.generation_tokens_per_second:g} out, "
            f"{server.prompt_tokens_per_second or 0:g} in"
        )
    if found.executor == Executor.RAY:
        members = found.nodes[0].ray_nodes
        parts.append(f"Ray {len(members)} of {len(found.nodes)} nodes" if members else "Ray not complete")
    elif found.executor == Executor.MP:
        parts.append("ranks over mp")
    if found.load_seconds is not None:
        parts.append(f"loads in {found.load_seconds} s")
    return Text("  ".join(parts))


def _nodes(found: Status) -> Table:
    table = Table(
        "node", "memory free", "rails", "containers", box=None, padding=(0, 2, 0, 0), pad_edge=False
    )
    for node in found.nodes:
        if node.fault:
            table.add_row(node.name, "", "", Text("out of reach", style="red"))
            continue
        memory = f"{node.memory_available / GIB:.0f} of {node.memory_total / GIB:.0f} GiB"
        rails = Text("\n").join(_rail(rail) for rail in node.rails)
        all_containers = Text("\n").join(_container(each) for each in node.containers)
        table.add_row(node.name, memory, rails, all_containers or Text("none", style="yellow"))
    return table


def _rail(rail: Link) -> Text:
    if rail.state != "up":
        return Text(f"{rail.interface} {rail.state}", style="red")
    speed = f" {rail.speed / 1000:g} Gb/s" if rail.speed else ""
    return Text(f"{rail.interface} up{speed} MTU {rail.mtu}")


def _container(each: Container) -> Text:
    style = "red" if each.state != "running" else "yellow" if each.restarts else ""
    return Text(f"{each.name} {each.words}", style=style)


def _faults(found: Status) -> list[Text]:
    head = found.nodes[0]
    lines = [
        f"{node.name}: {fault}" for node in found.nodes for fault in (node.fault, node.ray_fault) if fault
    ]
    if not found.server.answers:
        lines.append(f"server: {found.server.fault}")
        if (
            any(each.name == SERVER and each.state == "running" for each in head.containers)
            and head.last_line
        ):
            lines.append(f"its last word: {head.last_line}")
    return [Text(line, style="red") for line in lines]
