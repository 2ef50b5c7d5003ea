"""The list of reports is what the tests prove: no id without a test, no test of an id that is not listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+) \|$", re.MULTILINE)


class Marks:
    """Collects `pytest.mark.report(id, ...)` of the tests that would run."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.found = {name for item in items for mark in item.iter_markers("report") for name in mark.args}


def test_each_report_has_a_test_and_each_marked_test_a_report() -> None:
    marks = Marks()
    status = pytest.main(["--collect-only", "-qq", str(ROOT / "tests")], plugins=[marks])
    listed, _, otherwise = PAGE.partition("## Decided otherwise")
    reports = ROW.findall(listed)
    assert status == pytest.ExitCode.OK
    assert {name for name, _ in reports} == marks.found
    assert len(reports) == len(marks.found), "an id stands in the list twice"
    assert {name for name, _ in ROW.findall(otherwise)} <= marks.found
    assert all("](https://" in words for _, words in reports)
