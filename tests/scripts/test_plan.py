"""plan: what it makes of a preview, and how it says it."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.plan import Change, Plan, as_markdown, as_text, read, summary
from scripts.sizes import Download

CONTAINER = "spark-vllm:index:Cluster$docker:index/container:Container"
COMMAND = "spark-vllm:index:Vllm$command:remote:Command"


def step(op: str, name: str, kind: str = CONTAINER, **inputs: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A step of `pulumi preview --json`; `old` holds the inputs that differ before."""
    old = inputs.pop("old", {})
    docker_name = "vllm" if name == "vllm" else f"ray-{name}"
    new = {"name": docker_name, "command": ["serve"], "logOpts": {"tag": "x"}, **inputs}
    found: dict[str, Any] = {"op": op, "urn": f"urn:pulumi:s::spark-vllm::{kind}::{name}"}
    if op != "create":
        found["oldState"] = {"inputs": {**new, **old}}
    if op != "delete":
        found["newState"] = {"inputs": new}
    return found


def preview(*steps: dict[str, Any], **rest: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"steps": list(steps), **rest}


def test_a_flag_restarts_the_server_alone_and_says_which() -> None:
    found = read(
        "s",
        preview(
            step("same", "head"),
            step("same", "worker"),
            step("replace", "vllm", command=["serve", "--n=2"], old={"command": ["serve", "--n=1"]}),
            step("replace", "ready", COMMAND),
        ),
        {"loadSeconds": 412},
    )
    assert found.order == ["stop vllm", "start vllm"]
    assert found.kept == ["ray-head", "ray-worker"]
    assert found.containers[0].reasons == ("`--n=1` → `--n=2`",)
    assert found.steps == ["ready"]
    assert found.outage_seconds == 412
    assert summary(found) == (
        "The server restarts: the service is gone for about 412 s, as long as it loaded the last time."
    )


def test_what_stands_on_others_stops_first_and_starts_last() -> None:
    steps = [step("replace", name, old={"logOpts": {"tag": "y"}}) for name in ("head", "worker", "vllm")]
    found = read("s", preview(*steps), {})
    assert found.order == [
        "stop vllm",
        "stop ray-worker",
        "stop ray-head",
        "start ray-head",
        "start ray-worker",
        "start vllm",
    ]
    assert all(not each.reasons for each in found.containers)
    assert "vllm: stands on what is replaced" in as_markdown(found)


def test_a_replacement_that_pulumi_lists_in_three_steps_is_one() -> None:
    ops = ("delete-replaced", "replace", "create-replacement")
    found = read("s", preview(*(step(op, "vllm") for op in ops)), {})
    assert [(each.name, each.change) for each in found.containers] == [("vllm", Change.REPLACE)]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([], "Nothing changes."),
        ([step("same", "vllm")], "Nothing changes."),
        ([step("create", "smoke-test", COMMAND)], "No container changes."),
        ([step("create", "worker2")], "Containers change, but the server is not among them."),
        ([step("create", "vllm")], "The server is started, and answers after as long as the model loads."),
        ([step("delete", "vllm")], "The server is taken down."),
        (
            [step("replace", "vllm")],
            "The server restarts: the service is gone for as long as the model loads.",
        ),
    ],
)
def test_the_summary_says_what_happens_to_the_service(steps: list[dict[str, Any]], words: str) -> None:
    assert summary(read("s", preview(*steps), {})) == words


def test_files_are_named_and_their_content_is_not_shown() -> None:
    before, after = ([{"file": "/spark/api-key", "content": word}] for word in ("one", "two"))
    found = read("s", preview(step("replace", "vllm", uploads=after, old={"uploads": before})), {})
    assert found.containers[0].reasons == ("another content of /spark/api-key",)


def test_warnings_are_kept_and_what_only_informs_is_not() -> None:
    diagnostics = [
        {"severity": "warning", "message": "No SSH agent\n"},
        {"severity": "info", "message": "noise"},
    ]
    found = read("s", preview(diagnostics=diagnostics), {})
    assert found.warnings == ["No SSH agent"]


def test_both_forms_hold_all_of_it() -> None:
    found = Plan(
        "s",
        kept=["ray-head"],
        steps=["ready"],
        warnings=["mind this"],
        downloads=[Download("the image", "registry", 2 * 10**9)],
    )
    found.containers = read("s", preview(step("replace", "vllm")), {}).containers
    for text in (as_text(found).plain, as_markdown(found)):
        for words in (
            "stop vllm",
            "ray-head",
            "ready",
            "mind this",
            "the image, at most 2.00 GB, from registry",
        ):
            assert words in text
