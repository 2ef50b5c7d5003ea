"""Measurements: what is kept, compared and drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.bench_report import page, published
from scripts.measured import MeasuredError, Point, Run, compare, differences


def point(concurrency: int = 1, input_len: int = 512, **figures: float) -> Point:
    return Point.model_validate(
        {
            "concurrency": concurrency, "input_len": input_len, "output_len": 256,
            "num_prompts": 4, "completed": 4, "duration": 10.0, "request_throughput": 0.4,
            "output_throughput": 100.0, "total_token_throughput": 300.0,
            "median_ttft_ms": 50.0, "p99_ttft_ms": 60.0, "median_tpot_ms": 10.0, "p99_tpot_ms": 11.0,
            "median_itl_ms": 10.0, "p99_itl_ms": 12.0, "median_e2el_ms": 2600.0, "p99_e2el_ms": 2700.0,
            **figures,
        }
    )  # fmt: skip


def run(*points: Point, model: str = "Qwen/Qwen3.5-122B-A10B-FP8@abc", **settings: str) -> Run:
    return Run(
        stack="spark",
        started="2026-01-31T12:00:00Z",
        image="vllm@sha256:0",
        model=model,
        versions={"vllm": "0.32.0"},
        settings={"vllm": {"args": {"max-num-seqs": "4", **settings}}, "nodes": [{"name": "head"}]},
        points=list(points),
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    measured = run(point(), point(4))
    measured.write(tmp_path / "a.json")
    assert Run.read(tmp_path / "a.json") == measured


@pytest.mark.parametrize("text", [None, "", "[]", '{"stack": "spark"}'])
def test_another_file_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "other.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(MeasuredError, match=re.escape(str(path))):
        Run.read(path)


def test_more_throughput_is_better_and_more_latency_is_worse() -> None:
    found = compare(
        run(point(), point(16)),
        run(point(output_throughput=110, median_ttft_ms=60, median_itl_ms=10.4), point(8)),
        0.05,
    )
    assert {each.point for each in found} == {(512, 256, 1)}
    assert {each.figure: (each.better, round(each.ratio, 2)) for each in found} == {
        "output_throughput": (True, 1.1),
        "median_ttft_ms": (False, 1.2),
        "median_itl_ms": (None, 1.04),
        "median_e2el_ms": (None, 1.0),
    }


def test_what_differs_in_the_settings_is_named() -> None:
    before, after = (
        run(point()),
        run(point(), model="other", **{"max-num-seqs": "8", "enforce-eager": "true"}),
    )
    assert list(differences(before, after)) == [
        ("model", before.model, "other"),
        ("vllm.args.enforce-eager", None, "true"),
        ("vllm.args.max-num-seqs", "4", "8"),
    ]
    assert not list(differences(before, before))


def test_figures_of_others_are_drawn_for_their_model_alone() -> None:
    assert {each["nodes"] for each in published("Qwen/Qwen3.5-122B-A10B-FP8@abc")} == {2}
    assert published("/models/tiny") == []
    measured = run(point(), point(16))
    assert "published by others" in page(measured, published(measured.model))
    assert "ublished by others" not in page(measured, [])


def test_the_report_takes_its_colours_from_the_scheme() -> None:
    text = page(run(point(), point(8), point(input_len=4096), model="<b>&"), [])
    assert "prefers-color-scheme: dark" in text
    assert text.count("<svg") == 4
    charts = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert set(re.findall(r"(?:fill|stroke): (#\w+|var\([^)]*\))", charts)) <= {
        f"var(--{name})" for name in ("ink", "faint", "s0", "s1")
    }
    assert "prompts of 512" in charts
    assert "prompts of 4096" in charts
    assert "<b>&" not in text
    assert "max-num-seqs" in text
