"""The smoke test of a server, against the stub's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.images.programs import Machine
from tests.images.test_server import Server
from tests.remote import on_a_node

PARSERS = ("--reasoning-parser=qwen3", "--tool-call-parser=qwen3_coder", "--enable-auto-tool-choice")


def smoke(server: Server, scratch: Path, *, parsers: bool = False, wait: int = 20) -> tuple[int, str, str]:
    """Run the script as a node does, with a `docker` that has one line of log."""
    inputs = {
        "NODE": "head",
        "CONTAINER": "vllm",
        "URL": str(server.client.base_url).rstrip("/"),
        "MODEL_JSON": '"tiny"',
        "WAIT": f"{wait}",
        "LOAD": "2",
        "API_KEY": "key",
        "REASONING_PARSER": "qwen3" if parsers else "",
        "TOOL_PARSER": "qwen3_coder" if parsers else "",
    }
    return on_a_node("smoke.sh", inputs, scratch, docker="echo 'RuntimeError: the first cause'")


def test_a_server_that_is_down_is_told_at_once(head: Machine, tmp_path: Path) -> None:
    status, _, words = smoke(Server(head), tmp_path)
    assert status == 1
    assert "vllm is down" in words


def serve(head: Machine, mode: str = "ok", *argv: str) -> Server:
    server = Server(head, *argv, STUB_CHAT=mode, VLLM_API_KEY="key")
    server.wait()
    return server


def test_content_reasoning_and_a_tool_call_pass(head: Machine, tmp_path: Path) -> None:
    status, out, _ = smoke(serve(head, "ok", *PARSERS), tmp_path, parsers=True)
    assert (status, out.splitlines()) == (0, ["completion=ok", "reasoning=ok", "tool_call=ok"])


def test_without_parsers_a_completion_is_enough(head: Machine, tmp_path: Path) -> None:
    assert smoke(serve(head), tmp_path) == (0, "completion=ok\n", "")


def test_a_model_that_calls_no_tool_passes_with_a_word(head: Machine, tmp_path: Path) -> None:
    server = serve(head, "ok", "--reasoning-parser=qwen3")
    status, out, words = smoke(server, tmp_path, parsers=True)
    assert status == 0
    assert "tool_call=none" in out
    assert "without calling the tool" in words


def test_reasoning_alone_is_an_answer(head: Machine, tmp_path: Path) -> None:
    assert smoke(serve(head, "reasoning_only"), tmp_path)[0] == 0


def test_a_parser_that_does_not_fit_is_named(head: Machine, tmp_path: Path) -> None:
    status, _, words = smoke(serve(head, "raw", *PARSERS), tmp_path, parsers=True)
    assert status == 1
    assert "vllm.reasoningParser qwen3 does not fit" in words


@pytest.mark.parametrize(("mode", "cause"), [("500", "HTTP 500"), ("hang", "no completion within 1 s")])
def test_a_server_that_cannot_answer_fails_with_its_log(
    head: Machine, tmp_path: Path, mode: str, cause: str
) -> None:
    status, _, words = smoke(serve(head, mode), tmp_path, wait=1 if mode == "hang" else 20)
    assert status == 1
    assert cause in words
    assert "the first cause" in words
