"""The report of a benchmark: one HTML file with its charts in it, for light and for dark screens."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from scripts.measured import COLUMNS, Point, Run, number

PUBLISHED = Path(__file__).with_name("published.json")
CHARTS: tuple[tuple[str, str | None, str], ...] = (
    ("output_throughput", None, "Output tokens per second, all requests together"),
    ("median_ttft_ms", "p99_ttft_ms", "Time to first token, ms"),
    ("median_itl_ms", "p99_itl_ms", "Inter-token latency, ms"),
    ("median_e2el_ms", "p99_e2el_ms", "Whole answer, ms"),
)
# Stand in a chart for what the page's style sheet decides, so that one chart fits both schemes.
INK, FAINT = "#000001", "#000002"
SERIES = tuple(f"#0000{number}" for number in (10, 11, 12, 13, 14, 15))
NAMES = {INK: "--ink", FAINT: "--faint", **{colour: f"--s{n}" for n, colour in enumerate(SERIES)}}
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --faint: #c9ced4;
  --s0: #0969da; --s1: #bc4c00; --s2: #1a7f37; --s3: #8250df; --s4: #bf3989; --s5: #6e7781; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --faint: #3d444d;
  --s0: #58a6ff; --s1: #f0883e; --s2: #3fb950; --s3: #a371f7; --s4: #db61a2; --s5: #8b949e; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1100px;
  margin: 2rem auto; padding: 0 1rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 1rem; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .5rem; border-bottom: 1px solid var(--faint); }
td.name, th.name { text-align: left; }
td.name { overflow-wrap: anywhere; }
figure { margin: 0; }
.wide { overflow-x: auto; }
"""


def published(model: str) -> list[dict[str, Any]]:
    """Figures that others have published for a model, by its name."""
    entries: list[dict[str, Any]] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    name = model.partition("@")[0].rpartition("/")[2].casefold()
    return [each for each in entries if each["model"].casefold() == name]


def write_html(measured: Run, path: Path) -> None:
    """Write the report."""
    path.write_text(page(measured, published(measured.model)), encoding="utf-8")


def page(measured: Run, others: Sequence[Mapping[str, Any]]) -> str:
    """The report as HTML.

    Args:
        measured: The run.
        others: Published figures to draw in.
    """
    charts = "\n".join(f"<figure>{chart(measured, *each, others)}</figure>" for each in CHARTS)
    facts = {
        "model": measured.model,
        "image": measured.image,
        "versions": ", ".join(f"{name} {version}" for name, version in measured.versions.items()),
        "measured": measured.started,
    }
    rows = "".join(
        f'<tr><th class="name">{escape(k)}</th><td class="name">{escape(v)}</td></tr>'
        for k, v in facts.items()
    )
    sources = "".join(
        f"<li>{each['outputThroughput']} tokens/s, {each['concurrency']} at a time, {each['nodes']} nodes: "
        f"{escape(each['source'])}</li>"
        for each in others
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(measured.stack)}: {escape(measured.model)}</title><style>{STYLE}</style></head>
<body><h1>{escape(measured.stack)}: {escape(measured.model)}</h1><table>{rows}</table>
<div class="charts">{charts}</div>
<h2>All figures</h2><div class="wide">{_table(measured.points)}</div>
{f"<h2>Published by others</h2><ul>{sources}</ul>" if sources else ""}
<h2>Settings</h2><pre>{escape(json.dumps(measured.settings, indent=2))}</pre>
</body></html>
"""


def chart(
    measured: Run, figure: str, worst: str | None, title: str, others: Sequence[Mapping[str, Any]] = ()
) -> str:
    """A figure against concurrency as SVG: a line for each prompt length, the 99th percentile dashed."""
    # half a second, and only a report needs it
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter  # noqa: PLC0415

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": figure, "font.size": 10, "text.color": INK}):
        drawing = Figure(figsize=(5.6, 3.6), layout="constrained")
        axes = drawing.subplots()
        lengths = sorted({point.input_len for point in measured.points})
        for number, length in enumerate(lengths):
            points = sorted(
                (p for p in measured.points if p.input_len == length), key=lambda p: p.concurrency
            )
            x, colour = [p.concurrency for p in points], SERIES[number % len(SERIES)]
            axes.plot(
                x, [getattr(p, figure) for p in points], "o-", color=colour, label=f"prompts of {length}"
            )
            if worst:
                axes.plot(x, [getattr(p, worst) for p in points], "--", color=colour, alpha=0.6, lw=1)
        if others and worst is None:
            x = [each["concurrency"] for each in others]
            axes.plot(
                x, [each["outputThroughput"] for each in others], "x", color=INK, label="published by others"
            )
        axes.set_title(title + (" (dashed: p99)" if worst else ""), fontsize=11, color=INK)
        axes.set_xlabel("requests at a time", color=INK)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(sorted({point.concurrency for point in measured.points})))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.set_ylim(bottom=0)
        axes.tick_params(colors=INK)
        axes.grid(visible=True, color=FAINT, lw=0.6)
        for spine in axes.spines.values():
            spine.set_color(FAINT)
        axes.legend(frameon=False, labelcolor=INK)
        text = io.StringIO()
        drawing.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    for colour, name in NAMES.items():
        svg = svg.replace(colour, f"var({name})")
    return svg


def _table(points: Sequence[Point]) -> str:
    head = "".join(f"<th>{name}</th>" for name in COLUMNS.values())
    body = "".join(
        "<tr>" + "".join(f"<td>{number(getattr(point, name))}</td>" for name in COLUMNS) + "</tr>"
        for point in points
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
