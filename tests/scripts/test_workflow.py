"""The workflow that comments on pull requests: who may run it, and what it may do."""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML

from scripts.pulumi import ROOT

WORKFLOW: dict[str, Any] = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "plan.yaml")
JOB: dict[str, Any] = WORKFLOW["jobs"]["plan"]


def test_a_fork_meets_no_secret() -> None:
    assert list(WORKFLOW["on"]) == ["pull_request"]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in JOB["if"]
    assert " || " not in JOB["if"]


def test_it_may_comment_and_nothing_else() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert JOB["steps"][0]["with"]["persist-credentials"] is False


def test_actions_are_pinned_and_no_words_of_a_pull_request_become_shell() -> None:
    for step in JOB["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
        assert "${{" not in step.get("run", "")


def test_secrets_meet_the_plan_alone() -> None:
    assert [step["name"] for step in JOB["steps"] if "secrets." in str(step)] == ["plan"]
