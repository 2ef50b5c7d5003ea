"""Entry point of the operator's commands: `spark-vllm COMMAND`."""

import typer

from scripts.discover import discover
from scripts.recover import recover

app = typer.Typer(
    help="What a Spark owner does every day, with the same stack and the same pinned SSH as `pulumi up`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(discover)
app.command()(recover)


@app.callback()
def _commands() -> None:
    pass


if __name__ == "__main__":
    app(prog_name="spark-vllm")
