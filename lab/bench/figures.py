"""What was measured: samples of a thing and of what it is held against, and what the two should reach."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Self

from pydantic import BaseModel, ConfigDict


class Kind(StrEnum):
    """How a thing is held against another."""

    RATIO = "ratio"
    DIFFERENCE = "difference"
    VALUE = "value"


class Figure(BaseModel):
    """One line of the table.

    Attributes:
        name: Short, and the same from run to run.
        group: The part of the benchmark that measured it.
        what: What is measured.
        against: What it is held against; empty where it stands alone.
        unit: Of the samples: s, MB, connections.
        kind: How the two are compared.
        measured: Samples, in the order in which they were taken.
        reference: Samples of the other, taken in turn with them.
        reach: The most that the value should be; None where it is only told.
        real_pair: Whether, and how, it carries over to two real Sparks.
        note: Where the time goes, or what else is worth knowing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    group: str
    what: str
    against: str = ""
    unit: str = "s"
    kind: Kind = Kind.RATIO
    measured: tuple[float, ...]
    reference: tuple[float, ...] = ()
    reach: float | None = None
    real_pair: str = ""
    note: str = ""

    @property
    def value(self) -> float:
        """The ratio, the difference or the value itself, of medians."""
        mine = median(self.measured)
        if self.kind is Kind.VALUE:
            return mine
        other = median(self.reference)
        return mine / other if self.kind is Kind.RATIO else mine - other

    @property
    def reached(self) -> bool:
        """Whether the value is what it should be."""
        return self.reach is None or self.value <= self.reach


class Results(BaseModel):
    """All that one run measured.

    Attributes:
        started: When, RFC 3339.
        machine: What it ran on, in words.
        figures: What was measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    started: str
    machine: str
    figures: tuple[Figure, ...]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what a run has written."""
        return cls.model_validate_json(path.read_text(encoding="utf-8"))

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")

    def with_figures_of(self, other: Self) -> Self:
        """The same, and what another run measured that this one did not."""
        own = {figure.name for figure in self.figures}
        rest = tuple(figure for figure in other.figures if figure.name not in own)
        return self.model_copy(update={"figures": (*self.figures, *rest)})


def worse(baseline: Results, results: Results, room: float = 1.35) -> list[str]:
    """What has become worse than it was, with room for noise: one sentence for each.

    Seconds alone are not compared: they are those of one machine and one hour.

    Args:
        baseline: An earlier run.
        results: This one.
        room: How much larger a value may be before it counts.
    """
    before = {figure.name: figure for figure in baseline.figures}
    said = []
    for figure in results.figures:
        old = before.get(figure.name)
        if old is None or (figure.unit == "s" and figure.kind is not Kind.RATIO):
            continue
        if figure.value > old.value * room and not (
            figure.reach is not None and figure.value <= figure.reach
        ):
            said.append(f"{figure.name}: {figure.value:.2f}, and it was {old.value:.2f}")
    return said


def alternately(rounds: int, things: Mapping[str, Callable[[], float]]) -> dict[str, tuple[float, ...]]:
    """Take samples of several things in turn.

    Args:
        rounds: How many of each.
        things: By name, what takes one sample.

    Returns:
        The samples by name.
    """
    found: dict[str, list[float]] = {name: [] for name in things}
    for number in range(rounds):
        # whoever comes first finds colder caches
        names = sorted(things, reverse=number % 2 == 1)
        for name in names:
            found[name].append(things[name]())
    return {name: tuple(samples) for name, samples in found.items()}


def seconds(what: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.monotonic()
    what()
    return time.monotonic() - began
