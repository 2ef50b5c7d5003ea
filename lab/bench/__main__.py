"""`python -m lab.bench`: measure, compare with what was measured before, and write the page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lab.bench import connections, engine, page, service, transfer
from lab.bench.figures import Figure, Kind, Results, worse
from lab.deployment import ROOT
from lab.engine.errors import EngineError
from lab.environment import LOCAL
from lab.shell import LabError, heed_interrupts, say

PARTS: dict[str, Callable[[int], Iterator[Figure]]] = {
    "engine": engine.measure,
    "connections": connections.measure,
    "transfer": transfer.measure,
    "service": service.measure,
}
RESULTS = LOCAL / "bench.json"
BASELINE = ROOT / "docs" / "benchmark.json"

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
def run(
    only: Annotated[list[str] | None, typer.Option(help="A part; all of them by default.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each sample is taken.")] = 5,
    out: Annotated[Path, typer.Option(help="Where the measurements go, as JSON.")] = RESULTS,
) -> None:
    """Measure, and print the table; what was measured before of other parts stays in the file."""
    unknown = set(only or ()) - set(PARTS)
    if unknown:
        raise LabError(f"There is no part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}.")
    figures: list[Figure] = []
    started = datetime.now(UTC).isoformat(timespec="seconds")
    for part in only or PARTS:
        say(f"measuring: {part}")
        for figure in PARTS[part](rounds):
            say(f"{figure.name}: {figure.value:.2f}")
            figures.append(figure)
    results = Results(started=started, machine=_machine(), figures=tuple(figures))
    if out.exists():
        results = results.with_figures_of(Results.load(out))
    results.save(out)
    _print(results)
    print(f"written to {out}")


@app.command()
def compare(
    baseline: Annotated[Path, typer.Argument(help="An earlier run.")] = BASELINE,
    results: Annotated[Path, typer.Argument(help="This one.")] = RESULTS,
) -> None:
    """Say what has become worse; ratios, bytes and counts only. Status 1 if something has."""
    for file in (baseline, results):
        if not file.exists():
            raise LabError(
                f"There is no {file}: `python -m lab.bench run` measures, `page` makes the baseline."
            )
    found = worse(Results.load(baseline), Results.load(results))
    for sentence in found:
        print(sentence)
    raise typer.Exit(1 if found else 0)


@app.command("page")
def write_page(
    results: Annotated[Path, typer.Argument(help="What a run has written.")] = RESULTS,
) -> None:
    """Write docs/benchmark.md, its charts and docs/benchmark.json anew."""
    found = Results.load(results)
    found.save(BASELINE)
    page.write(found, BASELINE.parent)
    print(f"written: {BASELINE.parent / 'benchmark.md'}")


def _machine() -> str:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{os.cpu_count()} cores, {pages * size / 2**30:.0f} GiB, both nodes on it"


def _print(results: Results) -> None:
    table = Table("what", "against", "measured", "reference", "value", "reach", "", box=None, pad_edge=False)
    for figure in results.figures:
        table.add_row(
            figure.what,
            figure.against,
            _median(figure.measured, figure.unit),
            _median(figure.reference, figure.unit) if figure.reference else "",
            f"{figure.value:.2f}" + ("" if figure.kind is Kind.RATIO else f" {figure.unit}"),
            "" if figure.reach is None else f"{figure.reach:g}",
            "" if figure.reach is None else "reached" if figure.reached else "missed",
        )
    Console(width=160).print(table)


def _median(samples: tuple[float, ...], unit: str) -> str:
    low, middle, high = min(samples), sorted(samples)[len(samples) // 2], max(samples)
    return f"{middle:.2f} {unit} ({low:.2f} to {high:.2f})" if len(samples) > 1 else f"{middle:g} {unit}"


if __name__ == "__main__":
    os.chdir(ROOT)
    heed_interrupts()
    try:
        app(prog_name="python -m lab.bench")
    except (LabError, EngineError) as error:
        sys.exit(f"error: {error}")
