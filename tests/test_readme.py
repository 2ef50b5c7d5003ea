"""The tables of what restarts and of what can go wrong are what the lab tests prove: no row more or less."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
Rows = set[tuple[str, ...]]


def rows(file: str, heading: str) -> list[list[str]]:
    """The rows of the table below a heading."""
    text = (ROOT / file).read_text(encoding="utf-8")
    section = text.partition(f"{heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


class Marks:
    """Collects the marks of the tests: `row(changed, replaced, untouched)` and `fault(what)`."""

    def __init__(self) -> None:
        self.found: dict[str, Rows] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for name in ("row", "fault"):
            self.found[name] = {mark.args for item in items for mark in item.iter_markers(name)}


def test_each_row_has_a_test_and_each_test_a_row() -> None:
    marks = Marks()
    status = pytest.main(["--collect-only", "-qq", str(ROOT / "tests" / "deployment")], plugins=[marks])
    assert status == pytest.ExitCode.OK
    restarts = rows("README.md", "## What restarts")
    assert restarts
    assert {tuple(row) for row in restarts} == marks.found["row"]
    faults = rows("docs/faults.md", "# What can go wrong")
    assert faults
    assert {(row[0],) for row in faults} == marks.found["fault"]
