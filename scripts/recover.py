"""`recover`: after a `pulumi` that was killed, or a state that was lost, let `pulumi up` work again.

A killed update leaves its lock, operations that the state calls pending, and perhaps containers that no state
knows: their names are taken, so the next `up` could not make its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import asyncssh
import typer
from rich.console import Console
from rich.table import Table
from ruamel.yaml import YAML

from components.settings import PROJECT
from scripts import ssh
from scripts.pulumi import ROOT, PulumiError, pulumi

CONTAINER = "docker:index/container:Container"


@dataclass(frozen=True)
class Found:
    """A container with the labels of the stack."""

    node: str
    id: str
    name: str
    status: str


def recover(
    stack: Annotated[str, typer.Option(help="The stack to recover.")] = "spark",
    config_file: Annotated[
        Path | None, typer.Option(help="The stack's file, as pulumi's option of that name.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
) -> None:
    """Release the lock of a killed pulumi, and remove containers of the stack that no state knows."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    path = config_file or ROOT / f"Pulumi.{stack}.yaml"
    try:
        nodes = _nodes(path)
        pulumi("cancel", "--yes", "--stack", stack)
        state = json.loads(pulumi("stack", "export", "--stack", stack))
        asyncio.run(_clean(nodes, stack, _known(state["deployment"]), console, yes=yes))
        # What was being created when the update ended is gone now, or known.
        if state["deployment"].pop("pending_operations", None):
            pulumi("stack", "import", "--stack", stack, stdin=json.dumps(state))
    except (ssh.UnreachableError, ValueError, PulumiError) as error:
        console.print(f"[red]error:[/] {error}")
        raise typer.Exit(1) from None
    console.print(f"Now: pulumi up --refresh --stack {stack}")


def _known(deployment: dict[str, Any]) -> set[str]:
    resources: list[dict[str, Any]] = deployment.get("resources") or []
    return {each["id"] for each in resources if each["type"] == CONTAINER and "id" in each}


async def _clean(
    nodes: Sequence[dict[str, Any]], stack: str, known: set[str], console: Console, *, yes: bool
) -> None:
    async with AsyncExitStack() as connections:
        to: dict[str, asyncssh.SSHClientConnection] = {}
        for node in nodes:
            where = node["ssh"]
            address = ssh.Address(where["user"], where["host"], where.get("port", 22))
            if "hostKey" not in where:
                raise ValueError(
                    f"{node['name']} has no ssh.hostKey: `spark-vllm discover` reads and pins it."
                )
            bridge = to[where["jump"]] if "jump" in where else None
            to[node["name"]] = await connections.enter_async_context(
                ssh.connect(address, where["hostKey"], bridge)
            )
        strangers = [
            found
            for name, connection in to.items()
            for found in _read(name, await _ours(connection, name, stack))
            if found.id not in known
        ]
        if not strangers:
            console.print(f"No container of stack {stack} is unknown to its state.")
            return
        table = Table("node", "container", "status", title=f"Of stack {stack}, and unknown to its state")
        for found in strangers:
            table.add_row(found.node, found.name, found.status)
        console.print(table)
        if not yes:
            typer.confirm("Remove them? What they serve ends.", abort=True)
        for name, connection in to.items():
            ids = [found.id for found in strangers if found.node == name]
            if ids:
                await _ours(connection, name, stack, ids)


async def _ours(
    connection: asyncssh.SSHClientConnection, node: str, stack: str, ids: Sequence[str] = ()
) -> str:
    inputs = {"NODE": node, "PROJECT": PROJECT, "STACK": stack, "IDS": " ".join(ids)}
    return await ssh.run(connection, "ours.sh", inputs)


def _read(node: str, out: str) -> list[Found]:
    lines = (line.removeprefix("container=") for line in out.splitlines() if line.startswith("container="))
    return [Found(node, *line.split(maxsplit=2)) for line in lines]


def _nodes(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise ValueError(
            f"there is no {path.name}: `spark-vllm discover` makes it, or name it by --config-file."
        )
    config = (YAML(typ="safe").load(path) or {}).get("config") or {}
    nodes: list[dict[str, Any]] | None = config.get(f"{PROJECT}:nodes")
    if not nodes:
        raise ValueError(f"{path.name} names no {PROJECT}:nodes.")
    return nodes
