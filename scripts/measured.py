"""What a benchmark has measured, and of what: read, written and compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from scripts.errors import CommandError


class MeasuredError(CommandError):
    """A file that holds no measurements; the message names it."""


class Point(BaseModel):
    """One measurement; times in milliseconds, throughput in tokens a second over all requests.

    What `vllm bench serve` names so: https://docs.vllm.ai/en/latest/cli/bench/serve/.
    """

    model_config = ConfigDict(extra="ignore")

    concurrency: int
    input_len: int
    output_len: int
    num_prompts: int
    completed: int
    duration: float
    request_throughput: float
    output_throughput: float
    total_token_throughput: float
    median_ttft_ms: float
    p99_ttft_ms: float
    median_tpot_ms: float
    p99_tpot_ms: float
    median_itl_ms: float
    p99_itl_ms: float
    median_e2el_ms: float
    p99_e2el_ms: float

    @property
    def place(self) -> tuple[int, int, int]:
        """What tells a point from the others of its sweep."""
        return self.input_len, self.output_len, self.concurrency


class Run(BaseModel):
    """A sweep over one deployment.

    Attributes:
        stack: The stack.
        started: When, RFC 3339.
        image: With its digest.
        model: What is served, with its revision where it is of the hub.
        versions: Of vLLM and Ray in the image.
        settings: The keys that may make a difference, as the stack file has them.
        points: What was measured.
    """

    stack: str
    started: str
    image: str
    model: str
    versions: dict[str, str]
    settings: dict[str, JsonValue]
    points: list[Point]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Run:
        """Read what `write` wrote.

        Raises:
            MeasuredError: There is no such file, or it holds something else.
        """
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise MeasuredError(f"{path} cannot be read: {error.strerror}.") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise MeasuredError(
                f"{path} was not written by `spark-vllm bench`: {where} {first['msg']}."
            ) from None


@dataclass(frozen=True)
class Difference:
    """A figure of the same point in two runs.

    Attributes:
        point: Input length, output length, concurrency.
        figure: Its name.
        before: In the first run.
        after: In the second.
        better: Whether the second is better; None within the noise.
    """

    point: tuple[int, int, int]
    figure: str
    before: float
    after: float
    better: bool | None

    @property
    def ratio(self) -> float:
        """The second by the first."""
        return self.after / self.before if self.before else float("inf")


COLUMNS = {
    "input_len": "prompt",
    "output_len": "answer",
    "concurrency": "at a time",
    "num_prompts": "requests",
    "duration": "seconds",
    "output_throughput": "output tok/s",
    "total_token_throughput": "all tok/s",
    "median_ttft_ms": "TTFT ms",
    "p99_ttft_ms": "p99",
    "median_itl_ms": "ITL ms",
    "p99_itl_ms": "p99",
    "median_e2el_ms": "answer ms",
    "p99_e2el_ms": "p99",
}
"""What a point's figures are called in a table: lengths in tokens, medians and 99th percentiles."""
FIGURES = {
    "output_throughput": ("output tokens/s", True),
    "median_ttft_ms": ("time to first token, ms", False),
    "median_itl_ms": ("inter-token latency, ms", False),
    "median_e2el_ms": ("whole answer, ms", False),
}
"""Figures that are compared: what a person calls them, and whether more is better."""


def number(value: float) -> str:
    """A figure as a table shows it."""
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def compare(before: Run, after: Run, noise: float) -> list[Difference]:
    """The figures of points that both runs have.

    Args:
        before: The first run.
        after: The second.
        noise: Share by which a figure may differ and mean nothing.
    """
    old = {point.place: point for point in before.points}
    found = []
    for point in after.points:
        if point.place not in old:
            continue
        for name, (_, more_is_better) in FIGURES.items():
            first, second = getattr(old[point.place], name), getattr(point, name)
            same = abs(second - first) <= noise * abs(first)
            found.append(
                Difference(
                    point.place, name, first, second, None if same else (second > first) is more_is_better
                )
            )
    return found


def differences(before: Run, after: Run) -> Iterator[tuple[str, Any, Any]]:
    """What differs in what was measured: key, first, second."""
    for key in ("image", "model", "versions"):
        first, second = getattr(before, key), getattr(after, key)
        if first != second:
            yield key, first, second
    old, new = dict(_leaves(before.settings)), dict(_leaves(after.settings))
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def _leaves(value: JsonValue, prefix: str = "") -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{prefix}[{index}]")
    else:
        yield prefix, value
