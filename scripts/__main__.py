"""Entry point of the operator's commands: `spark-vllm COMMAND`."""

import sys

import typer
from rich.text import Text

from scripts.api import ApiError
from scripts.bench import bench
from scripts.chat import chat
from scripts.console import err
from scripts.discover import discover
from scripts.doctor import doctor
from scripts.logs import logs
from scripts.measured import MeasuredError
from scripts.pins import PinError
from scripts.plan import plan
from scripts.prune import prune
from scripts.pulumi import PulumiError
from scripts.recover import recover
from scripts.ssh import UnreachableError
from scripts.stack import StackError
from scripts.status import status

app = typer.Typer(
    help="What a Spark owner does every day, with the same stack and the same pinned SSH as `pulumi up`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (discover, doctor, plan, status, logs, chat, recover, prune):
    app.command()(command)
app.add_typer(bench, name="bench")


def main() -> None:
    """Run a command; what went wrong is told in a sentence, with exit status 1."""
    try:
        app(prog_name="spark-vllm")
    except (ApiError, MeasuredError, PinError, PulumiError, StackError, UnreachableError) as error:
        err().print(Text.assemble(("error: ", "red"), str(error)))
        sys.exit(1)


if __name__ == "__main__":
    main()
