"""`plan`: what `pulumi up` would do, as a reviewer wants to read it.

`pulumi preview` lists resources; a reviewer asks what restarts, why, in which order, how long the service is
gone and what is fetched.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from scripts.console import out
from scripts.containers import RESOURCE, SERVER
from scripts.pulumi import PulumiError, pulumi
from scripts.sizes import Download, sizes
from scripts.stack import DEFAULT, AsJson, ConfigFile, StackName, load

COMMAND = "command:remote:Command"
REPLACED = ("replace", "create-replacement")
TAG = "logOpts"
"""Where a container names what it stands on: all that differs of one that is replaced with others."""
SHOWN = 80
"""Characters of a value that are shown."""


class Change(StrEnum):
    """What happens to a container."""

    CREATE = "create"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True)
class Restart:
    """A container that is made, made anew, or goes; with what differs, a sentence each."""

    name: str
    change: Change
    reasons: tuple[str, ...]


@dataclass
class Plan:
    """What `up` would do.

    Attributes:
        stack: The stack.
        containers: In the order in which `up` makes them.
        kept: Containers that go on running.
        steps: Steps on nodes that run; they stop nothing.
        outage_seconds: How long the service will be gone, as long as the last load took; None where unknown.
        downloads: What is fetched.
        warnings: What pulumi warns of.
    """

    stack: str
    containers: list[Restart] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    outage_seconds: int | None = None
    downloads: list[Download] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def server(self) -> Change | None:
        """What happens to the server."""
        return next((each.change for each in self.containers if each.name == SERVER), None)

    @property
    def order(self) -> list[str]:
        """Stops and starts, in their order: what stands on others goes first and comes last."""
        stops = [f"stop {each.name}" for each in reversed(self.containers) if each.change is Change.REPLACE]
        starts = [f"start {each.name}" for each in self.containers if each.change is not Change.DELETE]
        return [
            *stops,
            *starts,
            *(f"remove {each.name}" for each in self.containers if each.change is Change.DELETE),
        ]


def plan(
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the head how much is fetched.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what `pulumi up` would restart, why, in which order, and how long the service will be gone.

    Needs the state, but changes nothing. The head is asked how much of image and model it lacks, if it is in
    reach. Exit status: 0, or 1 where the preview fails.
    """
    deployment = load(stack, config_file)
    found = read(stack, preview(stack, deployment.file), deployment.outputs())
    if not offline:
        found.downloads, fault = asyncio.run(sizes(deployment, set(found.steps)))
        if fault:
            found.warnings.append(fault)
    if as_json:
        print(json.dumps({"server": found.server, "order": found.order, **asdict(found)}, indent=2))
    elif markdown:
        print(as_markdown(found))
    else:
        out().print(as_text(found))


def preview(stack: str, file: Path) -> dict[str, Any]:
    """What `pulumi preview --json` prints.

    Raises:
        PulumiError: It fails; the message is what it says is wrong.
    """
    try:
        out = pulumi("preview", "--json", "--show-sames", "--stack", stack, "--config-file", str(file))
    except PulumiError as error:
        faults = _faults(error.output)
        raise PulumiError("\n".join(faults)) from None if faults else error
    digest: dict[str, Any] = json.loads(out)
    return digest


def _faults(output: str) -> list[str]:
    """The error messages of a preview that failed."""
    try:
        diagnostics = json.loads(output).get("diagnostics") or []
    except ValueError:
        return []
    return [each["message"].strip() for each in diagnostics if each["severity"] == "error"]


def read(stack: str, previewed: Mapping[str, Any], outputs: Mapping[str, Any]) -> Plan:
    """Make a plan of a preview.

    Args:
        stack: The stack.
        previewed: What `preview` returned.
        outputs: Of the last `pulumi up`.
    """
    found = Plan(stack)
    for step in previewed.get("steps") or []:
        urn: str = step["urn"]
        name, kind, op = urn.rpartition("::")[2], urn.split("::")[2].rpartition("$")[2], step["op"]
        if kind == COMMAND and op in ("create", "create-replacement", "replace"):
            found.steps.append(name)
        elif kind == RESOURCE and op == "same":
            found.kept.append(_docker_name(step["newState"]))
        elif kind == RESOURCE and op in ("create", "delete", *REPLACED):
            change = Change.REPLACE if op in REPLACED else Change(op)
            state = step.get("newState") or step["oldState"]
            found.containers.append(Restart(_docker_name(state), change, tuple(_reasons(step))))
    found.steps = list(dict.fromkeys(found.steps))
    found.containers = list({each.name: each for each in found.containers}.values())
    if found.server in (Change.REPLACE, Change.CREATE):
        found.outage_seconds = outputs.get("loadSeconds")
    found.warnings = [
        each["message"].strip()
        for each in previewed.get("diagnostics") or []
        if each["severity"] == "warning"
    ]
    return found


def _docker_name(state: Mapping[str, Any]) -> str:
    name: str = state["inputs"]["name"]
    return name


def _reasons(step: Mapping[str, Any]) -> Iterator[str]:
    """What differs between a container's old and new inputs, a sentence each."""
    if not (step.get("oldState") and step.get("newState")):
        return
    old, new = step["oldState"]["inputs"], step["newState"]["inputs"]
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after or key.startswith("__"):
            continue
        if key == TAG:
            continue
        if isinstance(before, list) and isinstance(after, list):
            yield from _changed(key, before, after)
        else:
            yield f"{key}: {_short(before)} → {_short(after)}"


def _changed(key: str, before: Sequence[Any], after: Sequence[Any]) -> Iterator[str]:
    gone = [each for each in before if each not in after]
    come = [each for each in after if each not in before]
    if key == "uploads":
        names = sorted({str(each.get("file", "a file")) for each in (*gone, *come) if isinstance(each, dict)})
        yield f"another content of {', '.join(names) or 'a file'}"
        return
    for old, new in zip(gone, come, strict=False):
        yield f"{_short(old)} → {_short(new)}"
    yield from (f"{_short(each)} goes" for each in gone[len(come) :])
    yield from (f"{_short(each)} comes" for each in come[len(gone) :])


def _short(value: Any) -> str:  # noqa: ANN401 - JSON
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{text if len(text) <= SHOWN else text[: SHOWN - 3] + '...'}`"


def summary(found: Plan) -> str:
    """The plan in a sentence."""
    seconds = found.outage_seconds
    span = (
        f"about {seconds} s, as long as it loaded the last time" if seconds else "as long as the model loads"
    )
    match found.server:
        case Change.REPLACE:
            return f"The server restarts: the service is gone for {span}."
        case Change.CREATE:
            return f"The server is started, and answers after {span.removeprefix('about ')}."
        case Change.DELETE:
            return "The server is taken down."
    if found.containers:
        return "Containers change, but the server is not among them."
    return "No container changes." if found.steps else "Nothing changes."


def as_text(found: Plan) -> Text:
    """The plan for a terminal."""
    style = "bold red" if found.server in (Change.REPLACE, Change.DELETE) else "bold green"
    text = Text.assemble((f"{found.stack}: {summary(found)}\n", style))
    for title, lines in _parts(found):
        text.append(f"\n{title}\n", style="bold")
        for line in lines:
            text.append(f"  {line}\n", style="yellow" if title == "Warnings" else "")
    text.rstrip()
    return text


def as_markdown(found: Plan) -> str:
    """The plan for a pull request."""
    icon = "🔴" if found.server in (Change.REPLACE, Change.DELETE) else "🟢"
    lines = [f"### {icon} `{found.stack}`: {summary(found)}", ""]
    for title, items in _parts(found):
        numbered = title == "In this order"
        if title == "Steps that run; they stop nothing":
            lines += [
                "<details><summary>" + title + "</summary>",
                "",
                *(f"- {item}" for item in items),
                "",
                "</details>",
            ]
        else:
            lines += [f"**{title}**", "", *(f"{'1.' if numbered else '-'} {item}" for item in items)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _parts(found: Plan) -> Iterator[tuple[str, list[str]]]:
    why = [
        f"{each.name}: {'; '.join(each.reasons)}"
        if each.reasons
        else f"{each.name}: stands on what is replaced"
        for each in found.containers
        if each.change is Change.REPLACE
    ]
    parts = {
        "In this order": found.order,
        "Because of": why,
        "Goes on running": found.kept if found.containers else [],
        "Is fetched": [str(each) for each in found.downloads],
        "Warnings": found.warnings,
        "Steps that run; they stop nothing": found.steps,
    }
    return ((title, lines) for title, lines in parts.items() if lines)
