"""chat: what it makes of a stream, and what it says when there is none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from scripts.api import ApiError
from scripts.chat import Answer, Sampling, ask

REQUEST = Sampling(max_tokens=8, temperature=0.0).request("tiny", [{"role": "user", "content": "Hello?"}])


def chunk(reason: str | None = None, **delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def stream(*events: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


def asked(response: httpx.Response, seen: list[dict[str, Any]] | None = None) -> Answer:
    """The answer to one question from a server that answers so."""

    def handle(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(json.loads(request.content))
        return response

    async def one() -> Answer:
        transport = httpx.MockTransport(handle)
        async with httpx.AsyncClient(transport=transport, base_url="http://head") as client:
            return await ask(client, REQUEST)

    return asyncio.run(one())


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_and_answer_are_kept_apart(field: str) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}
    events = stream(chunk(**{field: "Well. "}), chunk(content="Hello"), chunk("stop", content="."), usage)
    seen: list[dict[str, Any]] = []
    answer = asked(httpx.Response(200, text=events), seen)
    assert (answer.reasoning, answer.content, answer.finish_reason) == ("Well. ", "Hello.", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens) == (3, 5)
    assert 0 < answer.first_token_seconds <= answer.seconds
    (request,) = seen
    assert request["stream"]
    assert request["max_tokens"] == 8
    assert request["temperature"] == 0


def test_speed_is_counted_after_the_first_token() -> None:
    answer = Answer(completion_tokens=11, first_token_seconds=1.0, seconds=6.0)
    assert answer.tokens_per_second == pytest.approx(2.0)
    assert Answer(completion_tokens=1, first_token_seconds=1.0, seconds=1.0).tokens_per_second is None


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (httpx.Response(401, json={"error": "Unauthorized"}), "HTTP 401: Unauthorized"),
        (httpx.Response(404, json={"error": {"message": "no such model"}}), "HTTP 404: no such model"),
        (httpx.Response(502, text="<html>bad gateway</html>"), "HTTP 502: <html>bad gateway"),
        (
            httpx.Response(200, text=stream({"error": {"message": "engine died"}})),
            "in the middle of its answer",
        ),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(response: httpx.Response, words: str) -> None:
    with pytest.raises(ApiError, match=words):
        asked(response)


def test_a_server_that_is_not_there_is_told() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    async def one() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://head") as client:
            await ask(client, REQUEST)

    with pytest.raises(ApiError, match="`spark-vllm status`"):
        asyncio.run(one())
