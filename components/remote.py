"""Commands on nodes: a script of scripts/remote with its inputs, run through `bash -s` over SSH.

The script text and its inputs travel on standard input, so a command line holds neither a value nor a
secret, and nothing is copied to the node. Inputs stand before the script as quoted assignments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pulumi
from pulumi_command import remote

from components.settings import digest

if TYPE_CHECKING:
    from components.node import Node

SCRIPTS = Path(__file__).parent.parent / "scripts" / "remote"
DISCARD_INPUT = "cat >/dev/null"
"""An update that does nothing: a changed connection must not run a step again."""


@cache
def text(name: str) -> str:
    """A file of scripts/remote without full-line comments, so that editing one changes nothing deployed."""
    lines = (SCRIPTS / name).read_text(encoding="utf-8").splitlines()
    kept = (line for line in lines if line.strip() and (line.startswith("#!") or not re.match(r"\s*#", line)))
    return "\n".join(kept) + "\n"


def compose(script: str, inputs: Mapping[str, str], libraries: Sequence[str] = ()) -> str:
    """Put a script, what it builds on and its inputs together, as they are sent to `bash -s`."""
    assignments = "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(inputs.items()))
    return f"{assignments}{_program(script, libraries)}"


def run(  # noqa: PLR0913 - each argument is one independent property of the step
    name: str,
    script: str,
    *,
    node: Node,
    opts: pulumi.ResourceOptions,
    inputs: Mapping[str, str],
    secrets: Mapping[str, pulumi.Input[str]] | None = None,
    triggers: Sequence[pulumi.Input[str]] = (),
    verb: str = "",
    timeout: int = 120,
    libraries: Sequence[str] = (),
    connection: remote.ConnectionArgs | None = None,
) -> remote.Command:
    """A step that runs again when its script, its inputs or a trigger changes, and at no other time.

    Args:
        name: logical name.
        script: file of scripts/remote.
        node: where it runs.
        opts: options of the leaf.
        inputs: variables of the script.
        secrets: variables that are secret, known only later, or no reason to run the step again.
        triggers: further reasons to run again, for example the id of a container.
        verb: argument of the script, where it takes one.
        timeout: seconds after which the node itself ends the script.
        libraries: files of scripts/remote with functions that the script uses.
        connection: another than the one that a node's steps may share.
    """
    return remote.Command(
        name,
        connection=connection or node.connection,
        create=f"timeout -k 10 {timeout} bash -s" + (f" -- {verb}" if verb else ""),
        update=DISCARD_INPUT,
        stdin=_stdin(script, inputs, secrets, libraries),
        triggers=[digest(_program(script, libraries), inputs), *triggers],
        add_previous_output_in_env=False,
        opts=opts,
    )


def hold(  # noqa: PLR0913 - as above
    name: str,
    script: str,
    *,
    node: Node,
    opts: pulumi.ResourceOptions,
    inputs: Mapping[str, str],
    secrets: Mapping[str, pulumi.Input[str]] | None = None,
    timeout: int = 120,
    libraries: Sequence[str] = (),
) -> remote.Command:
    """A thing on a node with a beginning and an end: `apply` is idempotent, `remove` undoes it.

    Args:
        name: logical name.
        script: file of scripts/remote that takes `apply` or `remove`.
        node: where it is.
        opts: options of the leaf.
        inputs: variables of the script.
        secrets: variables that are secret, or known only later.
        timeout: seconds after which the node itself ends the script.
        libraries: files of scripts/remote with functions that the script uses.
    """
    apply = f"timeout -k 10 {timeout} bash -s -- apply"
    return remote.Command(
        name,
        connection=node.connection,
        create=apply,
        update=apply,
        delete=f"timeout -k 10 {timeout} bash -s -- remove",
        stdin=_stdin(script, inputs, secrets, libraries),
        add_previous_output_in_env=False,
        opts=opts,
    )


def value(command: remote.Command, key: str) -> pulumi.Output[str]:
    """What a step printed as `key=value`; empty where it printed no such line."""
    return command.stdout.apply(lambda out: dict(pairs(out)).get(key, ""))


def _program(script: str, libraries: Sequence[str]) -> str:
    return "".join(text(part) for part in ("lib.sh", *libraries, script))


def pairs(out: str) -> list[tuple[str, str]]:
    """The `key=value` lines that a script printed, in their order."""
    return [(key, rest) for key, found, rest in (line.partition("=") for line in out.splitlines()) if found]


def _stdin(
    script: str,
    inputs: Mapping[str, str],
    secrets: Mapping[str, pulumi.Input[str]] | None,
    libraries: Sequence[str] = (),
) -> pulumi.Input[str]:
    if not secrets:
        return compose(script, inputs, libraries)
    return pulumi.Output.all(**secrets).apply(lambda known: compose(script, {**inputs, **known}, libraries))
