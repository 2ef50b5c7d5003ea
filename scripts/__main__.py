"""Entry point of the operator's commands: `spark-vllm COMMAND`."""

import importlib
import sys
from collections.abc import Sequence

import typer
from rich.text import Text

from scripts.console import err
from scripts.errors import CommandError

COMMANDS = ("discover", "doctor", "plan", "status", "logs", "chat", "bench", "recover", "prune")


def app(names: Sequence[str]) -> typer.Typer:
    """The entry point with some of the commands; each is the one of its name in the file of its name."""
    found = typer.Typer(
        help="What a Spark owner does every day, with the same stack and the same pinned SSH as `pulumi up`.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    # without it, one command alone would go without its name
    found.callback()(lambda: None)
    for name in names:
        command = getattr(importlib.import_module(f"scripts.{name}"), name)
        if isinstance(command, typer.Typer):
            found.add_typer(command, name=name)
        else:
            found.command()(command)
    return found


def main() -> None:
    """Run a command; what went wrong is told in a sentence, with exit status 1."""
    # only what is asked for is loaded
    named = [name for name in COMMANDS if name == next(iter(sys.argv[1:]), None)]
    try:
        app(named or COMMANDS)(prog_name="spark-vllm")
    except CommandError as error:
        err().print(Text.assemble(("error: ", "red"), str(error)))
        sys.exit(1)


if __name__ == "__main__":
    main()
