"""What a pair with the stub image costs has not become worse than the committed measurements."""

from __future__ import annotations

import pytest

from lab.bench import connections, engine
from lab.bench.figures import Results, worse
from lab.deployment import ROOT, Deployment

pytestmark = pytest.mark.lab

BASELINE = ROOT / "docs" / "benchmark.json"


def test_ratios_and_counts_are_as_committed(deployed: Deployment) -> None:
    figures = (*engine.of(deployed, rounds=2), *connections.of(deployed))
    found = Results(started="", machine="", figures=figures)
    assert worse(Results.load(BASELINE), found) == []
