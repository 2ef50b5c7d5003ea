"""`logs`: what the containers of a stack say, from all nodes, in the order of time."""

from __future__ import annotations

import asyncio
import heapq
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import asyncssh
import typer
from rich.text import Text

from scripts import ssh
from scripts.console import out, warn
from scripts.containers import Container, ours
from scripts.nodes import connected, reached
from scripts.stack import DEFAULT, AsJson, ConfigFile, Stack, StackError, StackName, load

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
LOOK_AGAIN_SECONDS = 3
READ_SECONDS = 60
Links = Mapping[str, asyncssh.SSHClientConnection]


@dataclass(frozen=True, order=True)
class Line:
    """A line of a container's log; the time as Docker writes it (RFC 3339, UTC), which sorts as text."""

    time: str
    node: str
    container: str
    label: str
    text: str

    @classmethod
    def read(cls, source: Source, line: str) -> Line:
        """Read a line that Docker has put its time before."""
        time, _, text = line.rstrip("\r\n").partition(" ")
        # progress bars write over themselves: the last state is what a person would see
        last = text.rsplit("\r", 1)[-1]
        return cls(time, source.node, source.container.name, source.label, last)


@dataclass(frozen=True)
class Source:
    """A container on a node."""

    node: str
    container: Container

    @property
    def label(self) -> str:
        """How its lines are marked."""
        name = self.container.name
        return name if name.endswith(f"-{self.node}") else f"{name}@{self.node}"

    @property
    def failed(self) -> bool:
        """Whether it ended badly, or did and was started again."""
        return self.container.state != "running" or self.container.restarts > 0

    @property
    def fate(self) -> str:
        """What became of it."""
        if self.container.state != "running":
            return f"has failed ({self.container.words})"
        return f"had failed, and runs again ({self.container.words})"


def logs(  # noqa: PLR0913 - a command's options
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Containers (vllm, ray-worker) or nodes (worker); all if none is given."),
    ] = None,
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as they say more, until Ctrl-C.")
    ] = False,
    since: Annotated[
        str | None, typer.Option(help="From then on: 10m, 2h30m, or a time such as 2026-01-31T12:00:00Z.")
    ] = None,
    tail: Annotated[
        int, typer.Option(min=0, help="So many last lines of each container, unless --since.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the containers' logs, merged in the order of time and labelled.

    Where a container has failed, the first error of its log comes last, apart: it is the cause more
    often than what stands at the log's end. With --json each line is an object.
    """
    deployment = load(stack, config_file)
    printer = Printer(as_json=as_json)
    options = ["--since", since] if since else ["--tail", str(tail)]
    asyncio.run(_show(deployment, names or [], options, printer, follow=follow))


class Printer:
    """Writes lines, each container in a colour of its own."""

    def __init__(self, *, as_json: bool) -> None:
        """Write to standard output."""
        self._console = out()
        self._json = as_json
        self._colours: dict[str, str] = {}

    def line(self, line: Line) -> None:
        """Write one line."""
        if self._json:
            print(json.dumps(asdict(line)), flush=True)
            return
        colour = self._colours.setdefault(line.label, COLOURS[len(self._colours) % len(COLOURS)])
        self._console.print(
            Text.assemble((f"{line.time[11:19]} ", "dim"), (f"{line.label:<12} ", colour)),
            Text.from_ansi(line.text),
        )

    def first_error(self, source: Source, words: str) -> None:
        """Write what was most likely the cause."""
        if not self._json:
            self._console.print(
                Text(f"\n{source.label} {source.fate}. The first error of its log:", style="bold")
            )
            self._console.print(Text(words.strip() or "none that can be told from the rest", style="red"))


async def _show(
    stack: Stack, names: Sequence[str], options: Sequence[str], printer: Printer, *, follow: bool
) -> None:
    async with connected(stack.settings.nodes) as all_links:
        links = reached(all_links, warn)
        sources = await _sources(stack, links, names)
        read = await asyncio.gather(*(_read(links[each.node], each, options) for each in sources))
        for line in heapq.merge(*read):
            printer.line(line)
        if follow:
            last = {
                each.container.id: lines[-1].time for each, lines in zip(sources, read, strict=True) if lines
            }
            await _follow(stack, links, names, last, printer)
        for source in sources:
            if source.failed:
                printer.first_error(source, await _first_error(links[source.node], source))


async def _sources(stack: Stack, links: Links, names: Sequence[str]) -> list[Source]:
    """The containers that are asked for.

    Raises:
        StackError: There are none.
    """
    found = [
        Source(node, each) for node, link in links.items() for each in await ours(link, node, stack.name)
    ]
    wanted = [each for each in found if not names or {each.node, each.container.name} & set(names)]
    if not found:
        raise StackError(
            f"Stack {stack.name} has no containers: `pulumi up --stack {stack.name}` makes them."
        )
    if not wanted:
        known = sorted({name for each in found for name in (each.node, each.container.name)})
        raise StackError(
            f"No node and no container is named {', '.join(names)}; there are: {', '.join(known)}."
        )
    return wanted


def _command(source: Source, *options: str) -> str:
    return shlex.join(["docker", "logs", "--timestamps", *options, source.container.id]) + " 2>&1"


async def _read(link: asyncssh.SSHClientConnection, source: Source, options: Sequence[str]) -> list[Line]:
    done = await link.run(
        f"timeout {READ_SECONDS} {_command(source, *options)}", check=False, errors="replace"
    )
    if done.exit_status:
        raise StackError(f"{source.label}: {str(done.stdout).strip()[-300:]}")
    return [Line.read(source, line) for line in str(done.stdout).split("\n") if line]


async def _follow(
    stack: Stack, links: Links, names: Sequence[str], last: dict[str, str], printer: Printer
) -> None:
    """Go on with every container, also with those that an `up` makes and those that start again meanwhile."""
    followed: dict[str, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        while True:
            for node, link in links.items():
                for each in await ours(link, node, stack.name):
                    if names and not {node, each.name} & set(names):
                        continue
                    # Docker ends a log with its container
                    if each.state == "running" and (each.id not in followed or followed[each.id].done()):
                        followed[each.id] = group.create_task(
                            _stream(link, Source(node, each), last, printer)
                        )
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def _stream(
    link: asyncssh.SSHClientConnection, source: Source, last: dict[str, str], printer: Printer
) -> None:
    """Print what a container says until it ends; `last` has the time of its last line that was printed."""
    number = source.container.id
    seen = last.get(number, "")
    options = ["--follow", *(["--since", seen] if seen else [])]
    process = await link.create_process(_command(source, *options), errors="replace")
    try:
        async for text in process.stdout:
            line = Line.read(source, text)
            if line.time > seen:
                printer.line(line)
                last[number] = line.time
    finally:
        # a container that says nothing would keep its reader, and Ctrl-C waiting for it
        process.terminate()
        process.close()


async def _first_error(link: asyncssh.SSHClientConnection, source: Source) -> str:
    return await ssh.run(link, "first-error.sh", {"CONTAINER": source.container.id})
