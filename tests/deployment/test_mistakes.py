"""What a person reads after a mistake: one or two sentences, no traceback, nothing half done."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from lab.deployment import ROOT, Deployment
from tests.deployment.stack import Edit, containers, edit, settle, unchanged
from tests.samples import host_key

pytestmark = pytest.mark.lab


def wrong_head_key(config: dict) -> None:  # type: ignore[type-arg]
    config["nodes"][0]["ssh"]["hostKey"] = host_key("somebody else")


def wrong_worker_key(config: dict) -> None:  # type: ignore[type-arg]
    config["nodes"][1]["ssh"]["hostKey"] = host_key("somebody else")


def nobody_there(config: dict) -> None:  # type: ignore[type-arg]
    config["nodes"][0]["ssh"]["port"] = 1


def no_such_user(config: dict) -> None:  # type: ignore[type-arg]
    config["nodes"][0]["ssh"]["user"] = "nobody-here"


def unknown_key(config: dict) -> None:  # type: ignore[type-arg]
    config["vllm"]["gpuMemoryUtilisation"] = 0.5


def wrong_type(config: dict) -> None:  # type: ignore[type-arg]
    config["vllm"]["port"] = "eight thousand"


def no_pin(config: dict) -> None:  # type: ignore[type-arg]
    config["image"]["ref"] = config["image"]["ref"].partition("@")[0]


def no_model(config: dict) -> None:  # type: ignore[type-arg]
    config["model"]["directory"] = "/home/aurora/models/nothing"


def no_such_image(config: dict) -> None:  # type: ignore[type-arg]
    name = config["image"]["ref"].partition("@")[0]
    config["image"]["ref"] = f"{name}@sha256:{'0' * 64}"


def no_such_interface(config: dict) -> None:  # type: ignore[type-arg]
    config["nodes"][1]["rails"][1]["interface"] = "enp9s9"


report = pytest.mark.report
MISTAKES = [
    pytest.param(
        wrong_head_key, r"host key", "127.0.0.1", id="wrong host key of the head", marks=report("S2", "P2")
    ),
    pytest.param(
        wrong_worker_key,
        r"host key",
        "192.168.200.13",
        id="wrong host key of the worker",
        marks=report("S2", "P2"),
    ),
    pytest.param(nobody_there, r"refused|unreachable|cannot", "127.0.0.1:1", id="unreachable host"),
    pytest.param(
        no_such_user,
        r"accepts none of the keys|unable to authenticate",
        "nobody-here@",
        id="wrong user",
        marks=report("S7"),
    ),
    pytest.param(unknown_key, r"did you mean gpuMemoryUtilization", "Pulumi.test.yaml", id="unknown key"),
    pytest.param(wrong_type, r"spark-vllm:vllm.port: input should be a valid integer", "", id="wrong type"),
    pytest.param(no_pin, r"has no digest", "image.ref", id="no digest"),
    pytest.param(no_model, r"no directory /home/aurora/models/nothing", "head", id="no model"),
    pytest.param(no_such_image, r"cannot pull", "head", id="no such image"),
    pytest.param(
        no_such_interface,
        r"no interface enp9s9; it has:",
        "worker",
        id="no such interface",
        marks=report("N8"),
    ),
]


@pytest.fixture(scope="module")
def serving(pair: Deployment) -> Iterator[Deployment]:
    """The pair, up; after all the mistakes an `up` finds nothing to repair."""
    settle(pair)
    before = containers(pair)
    yield pair
    pair.must("up")
    assert containers(pair) == before
    unchanged(pair)


@pytest.mark.parametrize(("mistake", "words", "names"), MISTAKES)
def test_a_mistake_stops_nothing_and_is_told_in_words(
    serving: Deployment, mistake: Edit, words: str, names: str
) -> None:
    pair = serving
    before = containers(pair)
    right = pair.config_file.read_text()
    edit(pair, mistake)
    try:
        run = pair.pulumi("up", timeout=180)
    finally:
        pair.config_file.write_text(right)
    assert run.status != 0
    assert re.search(words, run.output), run.output
    assert names in run.output, run.output
    assert "Traceback" not in run.output
    assert containers(pair) == before


def test_without_an_agent_up_says_so(pair: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Deployment,
        "process_environment",
        lambda self: {**os.environ, **self.environment, "SSH_AUTH_SOCK": ""},
    )
    run = pair.pulumi("up")
    assert run.status != 0
    assert "No SSH agent (SSH_AUTH_SOCK is not set)" in run.output
    assert "Traceback" not in run.output


def test_a_stack_without_a_file_names_what_is_missing(pair: Deployment) -> None:
    run = pair.pulumi("stack", "init", "bare")
    assert run.status == 0, run.output
    bare = Deployment(
        pair.lab, "bare", pair.environment, pair.config_file.with_name("Pulumi.bare.yaml"), pair.scratch
    )
    (ROOT / "Pulumi.bare.yaml").unlink()
    run = bare.pulumi("preview")
    assert run.status != 0
    assert "missing" in run.output
    assert "image" in run.output
    assert "Traceback" not in run.output
