"""`recover`: after a `pulumi` that was killed, or a state that was lost, let `pulumi up` work again.

A killed update leaves its lock, operations that the state calls pending, and perhaps containers that no state
knows: their names are taken, so the next `up` could not make its own.
"""

from __future__ import annotations

import asyncio
import glob
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import asyncssh
import typer
from rich.console import Console
from rich.table import Table

from components.peers import key_name
from components.remote import pairs
from components.settings import PROJECT
from scripts import containers, ssh
from scripts.console import err
from scripts.nodes import connected, must
from scripts.pulumi import pulumi
from scripts.stack import DEFAULT, ConfigFile, Stack, StackName, load

OF_DOCKER = {containers.RESOURCE: "container", "docker:index/volume:Volume": "volume"}
KINDS = {
    "container": "container",
    "volume": "volume",
    "key": "SSH key of the head",
    "door": "line in authorized_keys",
}


@dataclass(frozen=True)
class Leftover:
    """Something of the stack on a node, of one of KINDS: by what name it is removed, and how it is shown."""

    node: str
    kind: str
    name: str
    label: str
    words: str

    @property
    def known_as(self) -> tuple[str, str]:
        """How a state that knows it has it; the key has the same name in each."""
        return self.kind, "" if self.kind == "key" else self.name


def recover(
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
) -> None:
    """Release the lock of a killed pulumi, and remove from the nodes what no state knows.

    That are the stack's containers, their volume for temporary files, and the SSH key by which the head sends
    files. The network stays as it is, and so does what is worth keeping: images, models, caches.
    """
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


def _known(state: dict[str, Any]) -> set[tuple[str, str]]:
    """What the state has of the nodes' things, as kind and name of a `Leftover`."""
    resources: list[dict[str, Any]] = state.get("resources") or []
    known = set()
    for each in resources:
        name = each["urn"].rpartition("::")[2]
        if each["type"] in OF_DOCKER and "id" in each:
            known.add((OF_DOCKER[each["type"]], each["id"]))
        elif name == "fabric-key":
            known.add(("key", ""))
        elif name.startswith("fabric-peer-"):
            known.add(("door", name.removeprefix("fabric-peer-")))
    return known


async def _clean(stack: Stack, known: set[tuple[str, str]], console: Console, *, yes: bool) -> None:
    async with connected(stack.settings.nodes) as links:
        # All of them: a node out of reach may hold what the next `up` stumbles over.
        to = {name: must(links, name) for name in links}
        looks = await asyncio.gather(*(_look(stack, name, link) for name, link in to.items()))
        strangers = [each for look in looks for each in look if each.known_as not in known]
        if not strangers:
            console.print(f"Nothing on the nodes is unknown to the state of stack {stack.name}.")
            return
        table = Table("node", "what", "name", "", title=f"Of stack {stack.name}, and unknown to its state")
        for each in strangers:
            table.add_row(each.node, KINDS[each.kind], each.label, each.words)
        console.print(table)
        console.print("Images, models and caches are kept: `spark-vllm prune` removes what nothing uses.")
        if not yes:
            typer.confirm("Remove them? What they serve ends.", abort=True)
        for name, link in to.items():
            lines = [f"{each.kind} {each.name}" for each in strangers if each.node == name]
            if lines:
                await _script(stack, name, link, "\n".join(lines))


async def _look(stack: Stack, node: str, link: asyncssh.SSHClientConnection) -> list[Leftover]:
    out = await _script(stack, node, link)
    found = [Leftover(node, "container", each.id, each.name, each.words) for each in containers.read(out)]
    for kind, name in pairs(out):
        if kind in ("volume", "key", "door"):
            found.append(Leftover(node, kind, name, name, ""))
    return found


async def _script(stack: Stack, node: str, link: asyncssh.SSHClientConnection, remove: str = "") -> str:
    inputs = {
        "NODE": node,
        "PROJECT": PROJECT,
        "STACK": stack.name,
        "KEY": key_name(stack.name),
        "REMOVE": remove,
    }
    return await ssh.run(link, "leftovers.sh", inputs, libraries=["containers.sh", "doors.sh"])
