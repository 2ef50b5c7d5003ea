"""The page of the benchmark: docs/benchmark.md and its charts, made from what a run has written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from matplotlib import rc_context
from matplotlib.figure import Figure as Drawing

from lab.bench.figures import Figure, Kind, Results

INK, FAINT, OURS, THEIRS = "#24292f", "#d0d7de", "#0969da", "#8c959f"
CHARTS = {
    "service": "Seconds without an answer, as a client sees them (medians)",
    "nothing changes": "Seconds where nothing changed (medians)",
    "transfers": "Seconds to the worker (medians)",
}
INTRODUCTION = """# What it costs

Made by `make bench` on the lab: {machine}, {started}. Absolute times of the lab are noise; what
counts are ratios and differences of medians of things that were run in turn, and bytes and counts.
`python -m lab.bench run --only PART` measures one part anew, `python -m lab.bench page` writes this page, and
`python -m lab.bench compare` says what is worse than in docs/benchmark.json.
"""


def write(results: Results, folder: Path) -> None:
    """Write the page and its charts.

    Args:
        results: What was measured.
        folder: Of the documentation.
    """
    parts = [INTRODUCTION.format(machine=results.machine, started=results.started[:10])]
    for group, members in groupby(sorted(results.figures, key=_place), key=lambda figure: figure.group):
        figures = list(members)
        parts.append(f"## {group[:1].upper()}{group[1:]}\n")
        if group in CHARTS:
            picture = folder / "pictures" / f"bench-{group.replace(' ', '-')}.svg"
            _draw([each for each in figures if each.unit == "s"], CHARTS[group], picture)
            parts.append(f"![{CHARTS[group]}](pictures/{picture.name})\n")
        parts.append(_table(figures))
        parts.append("\n".join(_remarks(figures)) + "\n")
    (folder / "benchmark.md").write_text("\n".join(parts), encoding="utf-8")


def _place(figure: Figure) -> int:
    order = ("service", "transfers", "nothing changes", "connections")
    return order.index(figure.group)


def _table(figures: Sequence[Figure]) -> str:
    lines = ["| what | against | value | reach | |", "|---|---|---|---|---|"]
    for figure in figures:
        unit = "" if figure.kind is Kind.RATIO else f" {figure.unit}"
        reach = "" if figure.reach is None else f"at most {figure.reach:g}{unit}"
        verdict = "" if figure.reach is None else "reached" if figure.reached else "**missed**"
        value = f"{figure.value:.2f}{unit}" if figure.unit == "s" or not unit else f"{figure.value:.0f}{unit}"
        lines.append(f"| {figure.what} | {figure.against} | {value} | {reach} | {verdict} |")
    return "\n".join(lines) + "\n"


def _remarks(figures: Sequence[Figure]) -> list[str]:
    said = []
    for figure in figures:
        words = figure.note + ("." if figure.note and not figure.note.endswith(".") else "")
        if figure.real_pair:
            words += f" On a real pair: {figure.real_pair}."
        if words:
            said.append(f"- **{figure.name}**: {words.strip()}")
    return said


def _draw(figures: Sequence[Figure], title: str, path: Path) -> None:
    """Two bars for each figure: what was measured, and what it is held against."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.size": 10, "text.color": INK}):
        drawing = Drawing(figsize=(8, 0.9 + 0.75 * len(figures)), layout="constrained", facecolor="white")
        axes = drawing.subplots()
        for place, figure in enumerate(reversed(figures)):
            bars = [(figure.measured, OURS, 0.2, "spark-vllm")]
            if figure.reference:
                bars.append((figure.reference, THEIRS, -0.2, figure.against))
            for samples, colour, offset, label in bars:
                length = median(samples)
                axes.barh(place + offset, length, height=0.36, color=colour)
                axes.text(
                    length, place + offset, f" {length:.1f}  {label}", va="center", fontsize=8, color=INK
                )
        axes.set_yticks(range(len(figures)), [figure.name for figure in reversed(figures)])
        axes.set_xlim(
            0, 1.6 * max(median(samples) for f in figures for samples in (f.measured, f.reference or (0,)))
        )
        axes.set_title(title, fontsize=11, color=INK, loc="left")
        axes.tick_params(colors=INK, length=0)
        axes.grid(visible=True, axis="x", color=FAINT, lw=0.6)
        axes.set_axisbelow(True)
        for spine in axes.spines.values():
            spine.set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, format="svg", metadata={"Date": None})
