"""`prune`: images, revisions of models and caches that the nodes keep and no deployment uses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import asyncssh
import typer
from rich.table import Table

from components.container import cache_volume
from components.settings import HubModel
from scripts import ssh
from scripts.console import out, warn
from scripts.nodes import connected, reached
from scripts.stack import DEFAULT, AsJson, ConfigFile, Stack, StackName, load
from scripts.units import GB


@dataclass(frozen=True)
class Leftover:
    """Something on a node that nothing uses: an `image`, a `cache` (a volume) or a `model`."""

    node: str
    kind: str
    bytes: int
    name: str


def prune(
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what no deployment uses any more, with sizes, and remove it after asking.

    That are images under this program's tags, caches of such images, and older revisions of models below
    model.root. What the stack's settings name stays, and what any container on the node uses. With --json it
    is only shown.
    """
    asyncio.run(_prune(load(stack, config_file), yes=yes, as_json=as_json))


async def _prune(stack: Stack, *, yes: bool, as_json: bool) -> None:
    async with connected(stack.settings.nodes) as links:
        within_reach = reached(links, warn)
        looks = await asyncio.gather(*(_look(stack, name, link) for name, link in within_reach.items()))
        found = [each for look in looks for each in look]
        if as_json:
            print(json.dumps([asdict(each) for each in found], indent=2))
            return
        if not found:
            out().print("Nothing: all that is kept is in use.")
            return
        out().print(_table(found))
        if not yes:
            typer.confirm("Remove them? What is wanted again is fetched or made again.", abort=True)
        await _remove(stack, within_reach, found)
        out().print(f"{sum(each.bytes for each in found) / GB:.2f} GB freed")


async def _look(stack: Stack, node: str, link: asyncssh.SSHClientConnection) -> list[Leftover]:
    out = await ssh.run(link, "prune.sh", _inputs(stack, node), libraries=["model.sh"])
    found = []
    for line in out.splitlines():
        kind, size, name = line.removeprefix("found=").split(maxsplit=2)
        found.append(Leftover(node, kind, int(size), name))
    return found


async def _remove(
    stack: Stack, links: Mapping[str, asyncssh.SSHClientConnection], found: Sequence[Leftover]
) -> None:
    for node, link in links.items():
        lines = "\n".join(f"{each.kind} {each.name}" for each in found if each.node == node)
        if lines:
            await ssh.run(link, "prune.sh", {**_inputs(stack, node), "REMOVE": lines}, libraries=["model.sh"])


def _inputs(stack: Stack, node: str) -> dict[str, str]:
    settings = stack.settings
    return {
        "NODE": node,
        "KEEP_IMAGE": settings.image.local_tag,
        "KEEP_VOLUME": cache_volume(settings),
        "KEEP_MODEL": settings.model.directory,
        "ROOT": settings.model.root if isinstance(settings.model, HubModel) else "",
        "REMOVE": "",
    }


def _table(found: Sequence[Leftover]) -> Table:
    table = Table("node", "what", "name", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("GB", justify="right")
    for each in found:
        table.add_row(each.node, each.kind, each.name, f"{each.bytes / GB:.2f}")
    total = sum(each.bytes for each in found)
    table.add_row("", "", "together", f"{total / GB:.2f}", style="bold")
    return table
