"""`recover`: after a `pulumi` that was killed, or a state that was lost, let `pulumi up` work again.

A killed update leaves its lock, operations that the state calls pending, and perhaps containers that no state
knows: their names are taken, so the next `up` could not make its own.
"""

from __future__ import annotations

import asyncio
import glob
import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.table import Table

from components.settings import PROJECT
from scripts.console import err
from scripts.containers import ours, remove
from scripts.nodes import connected, must
from scripts.pulumi import pulumi
from scripts.stack import DEFAULT, ConfigFile, Stack, StackName, load

CONTAINER = "docker:index/container:Container"


def recover(
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
) -> None:
    """Release the lock of a killed pulumi, and remove containers of the stack that no state knows."""
    console = err()
    deployment = load(stack, config_file)
    _mend_files(stack)
    pulumi("cancel", "--yes", "--stack", stack)
    state = json.loads(pulumi("stack", "export", "--stack", stack))
    asyncio.run(_clean(deployment, _known(state["deployment"]), console, yes=yes))
    # What was being created when the update ended is gone now, or known.
    if state["deployment"].pop("pending_operations", None):
        pulumi("stack", "import", "--stack", stack, stdin=json.dumps(state))
    console.print(f"Now: pulumi up --refresh --stack {stack}")


def _mend_files(stack: str) -> None:
    """Take away what a killed pulumi may leave of a state in files: descriptions without content.

    The state itself is put in place whole; the file beside it is not, and every later command ends with
    "failed to load checkpoint: EOF". Without it the state is read as well.
    """
    where = urlsplit(json.loads(pulumi("whoami", "--json", "--verbose")).get("url", ""))
    if where.scheme != "file":
        return
    folder = Path(where.netloc + where.path).expanduser() / ".pulumi" / "stacks" / PROJECT
    for description in folder.glob(f"{glob.escape(stack)}.json*.attrs"):
        if not description.stat().st_size:
            description.unlink()


def _known(deployment: dict[str, Any]) -> set[str]:
    resources: list[dict[str, Any]] = deployment.get("resources") or []
    return {each["id"] for each in resources if each["type"] == CONTAINER and "id" in each}


async def _clean(stack: Stack, known: set[str], console: Console, *, yes: bool) -> None:
    async with connected(stack.settings.nodes) as links:
        # All of them: a node out of reach may hold what the next `up` stumbles over.
        to = {name: must(links, name) for name in links}
        strangers = {
            name: [each for each in await ours(link, name, stack.name) if each.id not in known]
            for name, link in to.items()
        }
        if not any(strangers.values()):
            console.print(f"No container of stack {stack.name} is unknown to its state.")
            return
        table = Table("node", "container", "status", title=f"Of stack {stack.name}, and unknown to its state")
        for name, found in strangers.items():
            for each in found:
                table.add_row(name, each.name, each.words)
        console.print(table)
        if not yes:
            typer.confirm("Remove them? What they serve ends.", abort=True)
        for name, found in strangers.items():
            if found:
                await remove(to[name], name, stack.name, [each.id for each in found])
