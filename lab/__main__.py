"""Command line of the lab: python -m lab COMMAND."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import Annotated

import typer

from lab.instance import Lab
from lab.machine import require_root
from lab.outer import Outer
from lab.record import records
from lab.shell import LabError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Two simulated DGX Sparks.")
Name = Annotated[str | None, typer.Option("--name", envvar="SPARK_LAB", help="Default: that of this clone.")]
NodeName = Annotated[str, typer.Argument(help="head, worker, worker2 ...")]
Rail = Annotated[int, typer.Argument(min=0, max=1, help="0 or 1.")]


@app.command()
def up(
    name: Name = None,
    workers: Annotated[int | None, typer.Option(min=1, max=8, help="Nodes besides the head.")] = None,
    worker_interfaces: Annotated[
        str | None, typer.Option(help="The rails' names on the workers, with a comma between.")
    ] = None,
) -> None:
    """Bring the lab up, or repair what of it is down."""
    lab = Lab(name)
    lab.up(workers, tuple(worker_interfaces.split(",")) if worker_interfaces else None)
    _table(lab)


@app.command()
def down(
    name: Name = None,
    every: Annotated[bool, typer.Option("--all", help="All instances of this machine.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="All instances, and the cache of images.")] = False,
) -> None:
    """Remove the lab; with the last instance the outer engine stops."""
    outer = Outer()
    for other in list(records(outer)) if every or purge else []:
        Lab(other.name).down()
    Lab(name).down()
    if purge:
        outer.purge()


@app.command()
def status(
    name: Name = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Say which nodes there are and how to reach them."""
    lab = Lab(name)
    if as_json:
        print(json.dumps(lab.status(), indent=2))
    else:
        _table(lab)


@app.command(name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def execute(node: NodeName, command: Annotated[list[str], typer.Argument()], name: Name = None) -> None:
    """Run a command as root in a node, past its SSH."""
    lab = Lab(name)
    terminal = ["-t"] if sys.stdin.isatty() else []
    words = command[1:] if command[0] == "--" else command
    argv = lab.outer.command("exec", "-i", *terminal, lab.container(node), *words)
    os.execvp(argv[0], argv)  # noqa: S606


@app.command()
def reboot(node: NodeName, name: Name = None) -> None:
    """Shut a node down and boot it."""
    Lab(name).reboot(node)


@app.command()
def unplug(node: NodeName, rail: Rail, name: Name = None) -> None:
    """Pull the cable of a rail."""
    Lab(name).unplug(node, rail)


@app.command()
def plug(node: NodeName, rail: Rail, name: Name = None) -> None:
    """Put the cable of a rail back."""
    Lab(name).plug(node, rail)


@app.command()
def env(name: Name = None) -> None:
    """Print the shell exports that an operator of this lab needs."""
    for key, value in Lab(name).environment().items():
        print(f"export {key}={shlex.quote(value)}")


def _table(lab: Lab) -> None:
    found = lab.status()
    for node, facts in found["nodes"].items():
        addresses = ", ".join(f"{rail['interface']} {rail['address']}" for rail in facts["rails"])
        print(f"{node:8} {facts['state']:8} {addresses}  ssh -F {shlex.quote(found['sshConfig'])} {node}")


if __name__ == "__main__":
    try:
        require_root()
        app()
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        sys.exit(1)
