"""`doctor`: every assumption of the deployment, looked at on every node, with the remedy where one fails."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath

import asyncssh
import httpx
import typer
from rich.table import Table
from rich.text import Text

from components.gate import docker_names, ports
from components.network import link_inputs
from components.settings import PROJECT, Node
from scripts import ssh
from scripts.api import api, refusal
from scripts.console import out
from scripts.containers import RESOURCE, SERVER, Container
from scripts.findings import Facts, Finding, Level, judge
from scripts.nodes import Connections, connected
from scripts.pulumi import PulumiError, pulumi
from scripts.stack import DEFAULT, AsJson, ConfigFile, Stack, StackName, load

STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}
API_SECONDS = 60


def doctor(
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    quiet: bool = typer.Option(default=False, help="Only what is not as it should be."),
    as_json: AsJson = False,
) -> None:
    """Check every node against what the deployment needs, and say what to do. Changes nothing.

    Exit status: 1 if there is a problem; warnings alone are 0.
    """
    deployment = load(stack, config_file)
    findings = asyncio.run(_examine(deployment))
    if as_json:
        print(json.dumps([asdict(each) for each in findings], indent=2))
    else:
        _print(deployment, [each for each in findings if not quiet or each.level is not Level.OK], findings)
    if any(each.level is Level.PROBLEM for each in findings):
        raise typer.Exit(1)


async def _examine(stack: Stack) -> list[Finding]:
    # The state is read while the nodes are asked, and the key, which is opened once, while they are reached.
    state = asyncio.create_task(asyncio.to_thread(_state, stack))
    key = asyncio.gather(asyncio.to_thread(stack.secret, "apiKey"), return_exceptions=True)
    async with connected(stack.settings.nodes) as links:
        await key
        facts, answers = await asyncio.gather(
            asyncio.gather(*(_facts(stack, node, links) for node in stack.settings.nodes)),
            _api(stack, links[stack.settings.head.name]),
        )
    known, fault = await state
    findings = judge(stack.settings, facts)
    findings += _drift(stack, facts, known) if fault is None else [fault]
    return [*findings, *answers]


async def _facts(stack: Stack, node: Node, links: Connections) -> Facts:
    link, settings = links[node.name], stack.settings
    if isinstance(link, ssh.UnreachableError):
        return Facts(node.name, fault=str(link))
    model = PurePosixPath(settings.model.directory)
    inputs = {
        "NODE": node.name,
        "PROJECT": PROJECT,
        "STACK": stack.name,
        "RAILS": "\n".join(f"{rail.interface} {rail.rdma_device or '-'}" for rail in node.rails),
        "SYSFS": settings.network.sysfs,
        "PORTS": " ".join(str(port) for port, _ in ports(settings, node)),
        "PATHS": f"model {settings.model.mount}\nimages /var/lib/docker",
        "MODEL": str(model),
        "TAG": settings.image.local_tag,
    }
    try:
        (out, skew), link_fault = await asyncio.gather(_measured(link, inputs), _links(stack, node, link))
    except ssh.UnreachableError as error:
        return Facts(node.name, fault=str(error))
    return Facts.parse(node.name, out, link_fault=link_fault, skew=skew)


async def _measured(link: asyncssh.SSHClientConnection, inputs: Mapping[str, str]) -> tuple[str, float]:
    """What doctor.sh prints, and how far the node's clock is ahead, less the time that the answer took."""
    before = time.time()
    out = await ssh.run(link, "doctor.sh", inputs, libraries=["containers.sh", "machine.sh"])
    after = time.time()
    there = float(next(line.removeprefix("clock=") for line in out.splitlines() if line.startswith("clock=")))
    return out, there - after if there > after else min(there - before, 0.0)


async def _links(stack: Stack, node: Node, link: asyncssh.SSHClientConnection) -> str:
    if len(stack.settings.nodes) == 1:
        return ""
    try:
        await ssh.run(link, "link.sh", link_inputs(stack.settings, node))
    except ssh.UnreachableError as error:
        words = str(error).splitlines()
        return next((line for line in words if " reached on " not in line), words[-1])
    return ""


def _state(stack: Stack) -> tuple[Mapping[str, str], Finding | None]:
    """Ids of containers by name, as the state has them."""
    try:
        state = json.loads(pulumi("stack", "export", "--stack", stack.name))
    except PulumiError as error:
        words = str(error).splitlines()[0]
        return {}, Finding(
            "", "state", Level.WARNING, words, "Without it drift cannot be told; `pulumi stack ls`?"
        )
    resources = state["deployment"].get("resources") or []
    return {
        each["inputs"]["name"]: each["id"] for each in resources if each["type"] == RESOURCE and "id" in each
    }, None


def _drift(stack: Stack, facts: Sequence[Facts], known: Mapping[str, str]) -> Iterator[Finding]:
    if not known:
        yield Finding("", "containers", Level.WARNING, "none deployed yet", f"pulumi up --stack {stack.name}")
    for node in stack.settings.nodes:
        found = next(each for each in facts if each.node == node.name)
        if found.fault or found.values.get("docker_fault"):
            continue
        there = {each.name: each for each in found.containers}
        strangers = sorted(name for name in there if name not in known)
        faults = [
            f"{name} {fault}"
            for name in docker_names(stack.settings, node)
            if name in known and (fault := _differs(known[name], there.get(name)))
        ]
        restarted = [each for each in found.containers if each.restarts and each.state == "running"]
        for each in restarted:
            words = f"{each.name} was {each.restarted}, and runs"
            remedy = f"`spark-vllm logs {each.name}` shows the first error."
            yield Finding(node.name, "containers", Level.WARNING, words, remedy)
        if strangers:
            words = f"of this stack, and unknown to its state: {', '.join(strangers)}"
            remedy = f"spark-vllm recover --stack {stack.name}"
            yield Finding(node.name, "containers", Level.PROBLEM, words, remedy)
        if faults:
            remedy = f"`spark-vllm logs` says why; then: pulumi up --refresh --stack {stack.name}"
            yield Finding(node.name, "containers", Level.PROBLEM, "; ".join(faults), remedy)
        elif there and not strangers and not restarted:
            words = f"as the state has them: {', '.join(sorted(there))}"
            yield Finding(node.name, "containers", Level.OK, words)


def _differs(known: str, there: Container | None) -> str:
    """How a container is not as the state has it; empty if it is."""
    if there is None:
        return "is in the state, and gone from the node"
    if there.id != known:
        return "is another container than the state's"
    return "" if there.state == "running" else f"is {there.words}"


async def _api(stack: Stack, head: asyncssh.SSHClientConnection | ssh.UnreachableError) -> list[Finding]:
    if isinstance(head, ssh.UnreachableError):
        return []
    request = {
        "model": stack.settings.vllm.served_model_name,
        "max_tokens": 1,
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    findings = []
    async with api(stack, head, patience=API_SECONDS) as client:
        try:
            answer = await client.post("/v1/chat/completions", json=request)
            if answer.status_code == httpx.codes.OK:
                seconds = answer.elapsed.total_seconds()
                findings.append(Finding("", "API", Level.OK, f"a completion came back after {seconds:.2f} s"))
            else:
                findings.append(Finding("", "API", Level.PROBLEM, refusal(answer), "spark-vllm logs vllm"))
            if stack.has_secret("apiKey"):
                stranger = await client.get("/v1/models", headers={"Authorization": "Bearer nobody"})
                findings.append(_guarded(stranger))
        except httpx.HTTPError as error:
            words = "no answer in time" if isinstance(error, httpx.TimeoutException) else "nothing answers"
            findings.append(
                Finding(
                    "",
                    "API",
                    Level.PROBLEM,
                    f"{words} on port {stack.settings.vllm.port}",
                    f"spark-vllm logs {SERVER}",
                )
            )
    return findings


def _guarded(answer: httpx.Response) -> Finding:
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return Finding("", "API key", Level.OK, "who has none is refused")
    return Finding(
        "",
        "API key",
        Level.PROBLEM,
        f"a wrong key is answered with HTTP {answer.status_code}",
        "The server runs without its key: pulumi up --refresh --replace '**::vllm'.",
    )


def _print(stack: Stack, shown: Sequence[Finding], all_of_them: Sequence[Finding]) -> None:
    console = out(tables=True)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for name in (*(node.name for node in stack.settings.nodes), ""):
        for each in (each for each in shown if each.node == name):
            words = Text(each.words)
            if each.level is not Level.OK and each.remedy:
                words.append(f"\n→ {each.remedy}", style="dim")
            table.add_row(
                Text(each.level, style=STYLES[each.level]),
                Text(name or "all", style="bold"),
                each.check,
                words,
            )
    console.print(table)
    counts = Counter(each.level for each in all_of_them)
    parts = [
        f"{counts[level]} {level}{'s' if level is not Level.OK and counts[level] != 1 else ''}"
        for level in Level
    ]
    console.print(Text(", ".join(parts), style="bold"))
