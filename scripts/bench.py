"""`bench`: how fast the deployment is, by the image's own `vllm bench serve`, and what changed since."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import asyncssh
import typer
from pydantic import ValidationError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from components.commandline import local_url
from components.settings import HubModel, Settings
from scripts import plan, ssh
from scripts.bench_report import write_html
from scripts.console import err, out
from scripts.containers import SERVER
from scripts.measured import COLUMNS, FIGURES, MeasuredError, Point, Run, compare, differences, number
from scripts.nodes import connected, must
from scripts.stack import DEFAULT, AsJson, ConfigFile, Stack, StackName, load

POINT_SECONDS = 1800
SEED = 1
PROGRESS = re.compile(r"(\d+)/(\d+) \[")

bench = typer.Typer(help="Measure the deployment, and compare measurements.", invoke_without_command=True)


@bench.callback()
def run(  # noqa: PLR0913 - a command's options
    context: typer.Context,
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    concurrency: Annotated[str, typer.Option(help="Requests at a time, each in turn.")] = "1,2,4,8,16",
    input_len: Annotated[str, typer.Option(help="Tokens of a prompt, each in turn.")] = "512,4096",
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of an answer.")] = 256,
    rounds: Annotated[int, typer.Option(min=1, help="Requests for each of those at a time.")] = 4,
    folder: Annotated[Path, typer.Option("--out", help="Where the files go.")] = Path("bench"),
    as_json: AsJson = False,
) -> None:
    """Sweep over concurrency and prompt lengths; write JSON and an HTML report, and print a table.

    The client runs in the server's container, so no network lies in between. Requests of others are measured
    with it: see that there are none, or the figures compare with nothing.
    """
    if context.invoked_subcommand is not None:
        return
    sweep = [
        (length, number)
        for length in _numbers(input_len, "--input-len")
        for number in _numbers(concurrency, "--concurrency")
    ]
    deployment = load(stack, config_file)
    _as_deployed(deployment)
    measured = asyncio.run(_measure(deployment, sweep, output_len, rounds))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stack}-{measured.started.replace(':', '')}.json"
    measured.write(path)
    write_html(measured, path.with_suffix(".html"))
    if as_json:
        print(measured.model_dump_json(indent=2))
    else:
        out(tables=True).print(table(measured))
    err().print(f"written: {path} and {path.with_suffix('.html').name}")


@bench.command("compare")
def compare_runs(
    before: Annotated[Path, typer.Argument(help="A JSON file of `bench`.")],
    after: Annotated[Path, typer.Argument(help="Another.")],
    noise: Annotated[float, typer.Option(min=0, max=1, help="Share by which figures may differ.")] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Say what got faster or slower from one measurement to the other, and what differs in the settings."""
    first, second = Run.read(before), Run.read(after)
    found, changed = compare(first, second, noise), list(differences(first, second))
    if not found:
        raise MeasuredError(f"{before} and {after} have no prompt length and concurrency in common.")
    if as_json:
        figures = [
            {"point": each.point, "figure": each.figure, "ratio": each.ratio, "better": each.better}
            for each in found
        ]
        keys = [{"key": key, "before": old, "after": new} for key, old, new in changed]
        print(json.dumps({"figures": figures, "settings": keys}, indent=2))
        return
    grid = Table("prompt", "answer", "at a time", "figure", "before", "after", "", box=None, pad_edge=False)
    for each in found:
        style, word = {True: ("green", "better"), False: ("red", "worse"), None: ("dim", "same")}[each.better]
        figures_ = (
            f"{each.before:.1f}",
            f"{each.after:.1f}",
            Text(f"{word} ({each.ratio:.2f} x)", style=style),
        )
        grid.add_row(*map(str, each.point), FIGURES[each.figure][0], *figures_)
    console = out(tables=True)
    console.print(grid)
    console.print(
        Text(
            "\nWhat differs in what was measured:" if changed else "\nThe settings are the same.",
            style="bold",
        )
    )
    for key, old, new in changed:
        console.print(Text(f"  {key}: {old} → {new}"))


def _as_deployed(stack: Stack) -> None:
    """Assert that what runs is what the stack file says, for that is what the report will say."""
    found = plan.read(stack.name, plan.preview(stack.name, stack.file), {})
    if found.containers:
        names = ", ".join(each.name for each in found.containers)
        raise MeasuredError(
            f"{stack.file.name} says something else than what runs (`pulumi up` would touch {names}), so "
            f"the report would name settings that were not measured: `pulumi up --stack {stack.name}` first."
        )


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"{text!r}: numbers above 0, separated by commas", param_hint=option)
    return numbers


async def _measure(stack: Stack, sweep: Sequence[tuple[int, int]], output_len: int, rounds: int) -> Run:
    settings = stack.settings
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    versions = stack.outputs().get("versions") or {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    points = []
    async with connected([settings.head]) as links:
        link = must(links, settings.head.name)
        with Progress(*columns, console=err()) as progress:
            total = sum(number * rounds for _, number in sweep)
            task = progress.add_task("requests", total=total)
            done = 0
            for length, number in sweep:
                progress.update(task, description=f"prompts of {length} tokens, {number} at a time")

                def tell(finished: int, so_far: int = done) -> None:
                    progress.update(task, completed=so_far + finished)

                points.append(await _point(stack, link, (length, output_len, number), number * rounds, tell))
                done += number * rounds
                progress.update(task, completed=done)
    return Run(
        stack=stack.name,
        started=started,
        image=settings.image.ref,
        model=_model(settings),
        versions=versions,
        settings=settings.model_dump(mode="json", by_alias=True, exclude={"nodes": {"__all__": {"ssh"}}}),
        points=points,
    )


async def _point(
    stack: Stack,
    link: asyncssh.SSHClientConnection,
    place: tuple[int, int, int],
    prompts: int,
    tell: Callable[[int], None],
) -> Point:
    settings = stack.settings
    length, output_len, number = place
    inputs = {
        "NODE": settings.head.name,
        "CONTAINER": SERVER,
        "URL": local_url(settings),
        "MODEL": settings.model_path,
        "SERVED": settings.vllm.served_model_name,
        "INPUT": str(length),
        "OUTPUT": str(output_len),
        "PROMPTS": str(prompts),
        "CONCURRENCY": str(number),
        "SEED": str(SEED),
        "WAIT": str(POINT_SECONDS),
    }

    def word(line: str) -> None:
        if found := PROGRESS.search(line):
            tell(int(found[1]))

    printed = await ssh.stream(link, "bench.sh", inputs, seconds=POINT_SECONDS + 60, word=word)
    result: dict[str, Any] = json.loads(printed.partition("result=")[2])
    own = {"concurrency": number, "input_len": length, "output_len": output_len}
    try:
        point = Point.model_validate({**result, **own})
    except ValidationError as error:
        missing = ", ".join(".".join(map(str, each["loc"])) for each in error.errors())
        raise MeasuredError(f"This image's `vllm bench serve` does not tell {missing}.") from None
    if point.completed < prompts:
        raise MeasuredError(
            f"{prompts - point.completed} of {prompts} requests failed, with prompts of {length} tokens and "
            f"{number} at a time: is {length} + {output_len} more than max-model-len? `spark-vllm logs vllm` "
            "says why."
        )
    return point


def _model(settings: Settings) -> str:
    model = settings.model
    return f"{model.repo}@{model.revision}" if isinstance(model, HubModel) else model.directory


def table(measured: Run) -> Table:
    """The points of a run for a terminal, as wide as one is."""
    names = [name for name in COLUMNS if name not in ("output_len", "num_prompts", "duration", "p99_e2el_ms")]
    grid = Table(title=f"{measured.model}, {measured.started}", box=None, pad_edge=False)
    for name in names:
        grid.add_column(COLUMNS[name], justify="right")
    for point in measured.points:
        grid.add_row(*(number(getattr(point, name)) for name in names))
    return grid
