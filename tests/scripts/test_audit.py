"""The audit of the dependencies: it fails for what is known to be wrong, and for nothing else."""

from __future__ import annotations

import json

import pytest

from scripts.audit import verdict

GOOD = {"name": "attrs", "version": "25.1.0", "vulns": []}
BAD = {"name": "jinja2", "version": "3.1.4", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.5"]}]}
UNKNOWN = {"name": "own", "skip_reason": "Dependency not found on PyPI and could not be audited: own (1)"}


@pytest.mark.parametrize(
    ("found", "right", "lines"),
    [
        ([GOOD], True, []),
        ([GOOD, UNKNOWN], True, ["audit: the service knows nothing of 1 of 2 packages"]),
        ([GOOD, BAD], False, ["audit: jinja2 3.1.4: PYSEC-1, mended in 3.1.5"]),
        (
            [UNKNOWN, BAD],
            False,
            [
                "audit: jinja2 3.1.4: PYSEC-1, mended in 3.1.5",
                "audit: the service knows nothing of 1 of 2 packages",
            ],
        ),
    ],
)
def test_only_what_is_known_to_be_wrong_fails(found: list[object], right: bool, lines: list[str]) -> None:
    assert verdict(json.dumps({"dependencies": found, "fixes": []}), "") == (right, lines)


def test_without_the_service_one_line_says_so() -> None:
    right, lines = verdict("", "Traceback\nrequests.exceptions.ConnectionError: no route")
    assert right
    assert lines[0].endswith("out of reach (requests.exceptions.ConnectionError: no route)")
    assert len(lines) == 1
