"""A server that dies while it loads, or cannot answer: `up` says why, and a revert repairs it."""

from __future__ import annotations

import time

import pytest

from lab.deployment import Deployment, Run
from tests.deployment.stack import ask, containers, edit, settle, unchanged

pytestmark = pytest.mark.lab


def up_with(pair: Deployment, **env: str) -> Run:
    """Bring the pair up, then change the server's environment, and change it back after the attempt."""
    settle(pair)
    right = pair.config_file.read_text()
    edit(pair, lambda config: config["vllm"].setdefault("env", {}).update(env))
    try:
        return pair.pulumi("up")
    finally:
        pair.config_file.write_text(right)


@pytest.mark.report("D3", "Q8")
def test_a_server_that_dies_at_load_ends_the_up_at_once_with_its_log(pair: Deployment) -> None:
    started = time.monotonic()
    run = up_with(pair, STUB_LOAD_S="600", STUB_EXIT_AFTER_S="3")
    assert run.status != 0
    # The limit is an hour (vllm.readyTimeout): what is dead is not waited for.
    assert time.monotonic() - started < 120
    assert "The first error in its log, and its end" in run.output
    assert "serve ended with status" in run.output
    before = containers(pair)
    pair.must("up")
    after = containers(pair)
    assert {name for name in after if after[name] != before[name]} == {"vllm"}
    assert ask(pair).status_code == 200
    unchanged(pair)


@pytest.mark.report("Q1")
def test_health_alone_does_not_pass_for_an_answer(pair: Deployment) -> None:
    run = up_with(pair, STUB_CHAT="500")
    assert run.status != 0
    assert "a chat completion was answered with HTTP 500" in run.output
    pair.must("up")
    assert ask(pair).status_code == 200
