"""The benchmark's arithmetic and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.bench import page
from lab.bench.figures import Figure, Kind, Results, alternately, worse


def figure(
    measured: tuple[float, ...] = (2.0, 1.0, 9.0), kind: Kind = Kind.RATIO, unit: str = "s", **other: float
) -> Figure:
    return Figure(
        name="a thing", group="service", what="a thing", against="another", kind=kind, unit=unit,
        measured=measured, reference=(4.0,), **other,
    )  # fmt: skip


def results(*figures: Figure) -> Results:
    return Results(started="2026-01-01T00:00:00+00:00", machine="a machine", figures=figures)


@pytest.mark.parametrize(("kind", "value"), [(Kind.RATIO, 0.5), (Kind.DIFFERENCE, -2.0), (Kind.VALUE, 2.0)])
def test_medians_are_compared(kind: Kind, value: float) -> None:
    assert figure(kind=kind).value == value


def test_what_is_reached() -> None:
    assert figure(reach=0.5).reached
    assert not figure(reach=0.4).reached
    assert figure().reached


def test_things_take_turns_and_each_is_first_in_turn() -> None:
    order: list[str] = []

    def sample(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = alternately(2, {"a": lambda: sample("a"), "b": lambda: sample("b")})
    assert order == ["a", "b", "b", "a"]
    assert found == {"a": (1.0, 4.0), "b": (2.0, 3.0)}


def test_what_has_become_worse_is_said_and_seconds_are_no_reason() -> None:
    before = results(figure())
    assert worse(before, before) == []
    assert worse(before, results(figure((2.6,)))) == []
    assert worse(before, results(figure((3.0,)))) == ["a thing: 0.75, and it was 0.50"]
    assert worse(before, results(figure((3.0,), reach=0.8))) == [], "what is reached is good enough"
    slow = results(figure((99.0,), Kind.VALUE))
    assert worse(results(figure(kind=Kind.VALUE)), slow) == []
    many = results(figure((9.0,), Kind.VALUE, "handshakes"))
    assert worse(results(figure((4.0,), Kind.VALUE, "handshakes")), many) != []


def test_the_page_holds_every_figure_and_draws_the_seconds(tmp_path: Path) -> None:
    page.write(results(figure(reach=0.4), figure((7.0,), Kind.VALUE, "handshakes")), tmp_path)
    text = (tmp_path / "benchmark.md").read_text()
    assert "| a thing | another | 0.50 | at most 0.4 | **missed** |" in text
    assert "| a thing | another | 7 handshakes |  |  |" in text
    assert "pictures/bench-service.svg" in text
    assert (tmp_path / "pictures" / "bench-service.svg").read_text().startswith("<?xml")


def test_results_are_kept_and_those_of_other_parts_with_them(tmp_path: Path) -> None:
    old = results(figure(), figure().model_copy(update={"name": "another thing"}))
    old.save(tmp_path / "bench.json")
    kept = results(figure((8.0,))).with_figures_of(Results.load(tmp_path / "bench.json"))
    assert [(each.name, each.value) for each in kept.figures] == [("a thing", 2.0), ("another thing", 0.5)]
