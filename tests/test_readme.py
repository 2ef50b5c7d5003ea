"""The README's table of what restarts is what the tests of the lab prove: no row more, no row less."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
Rows = set[tuple[str, ...]]


def rows() -> Rows:
    """The rows of the table."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## What restarts")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return {tuple(cell.strip() for cell in line) for line in lines[2:]}


class Marks:
    """Collects `pytest.mark.row(changed, replaced, untouched)` of the tests that would run."""

    def __init__(self) -> None:
        self.found: Rows = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.found = {mark.args for item in items for mark in item.iter_markers("row")}


def test_each_row_has_a_test_and_each_test_a_row() -> None:
    marks = Marks()
    status = pytest.main(["--collect-only", "-qq", str(ROOT / "tests" / "deployment")], plugins=[marks])
    assert status == pytest.ExitCode.OK
    assert rows()
    assert rows() == marks.found
