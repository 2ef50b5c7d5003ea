"""`chat`: one question, or a dialogue, from the terminal."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.text import Text

from scripts.api import ApiError, api, refusal
from scripts.console import err, out
from scripts.nodes import connected, must
from scripts.stack import DEFAULT, AsJson, ConfigFile, Stack, StackName, load

PATH = "/v1/chat/completions"
WAIT_SECONDS = 300


@dataclass
class Answer:
    """What came back of one question.

    Attributes:
        content: The answer itself.
        reasoning: What the model thought aloud, where vllm.reasoningParser sets it apart.
        finish_reason: `stop`, or `length` where maxTokens cut it.
        prompt_tokens: Of the whole dialogue, as the server counts them.
        completion_tokens: Of answer and reasoning.
        first_token_seconds: From the question to the first token.
        seconds: From the question to the last token.
    """

    content: str = ""
    reasoning: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """After the first token; None where there is but one."""
        rest = self.seconds - self.first_token_seconds
        return (self.completion_tokens - 1) / rest if self.completion_tokens > 1 and rest > 0 else None


@dataclass(frozen=True)
class Sampling:
    """How the model is to answer; what is None is the server's own default."""

    max_tokens: int | None = None
    temperature: float | None = None
    system: str | None = None

    def beginning(self) -> list[dict[str, str]]:
        """The messages that stand before the first question."""
        return [{"role": "system", "content": self.system}] if self.system else []

    def request(self, model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
        """The body of the request."""
        given = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        own = {key: value for key, value in given.items() if value is not None}
        return {"model": model, "messages": messages, **own}


@dataclass
class Printer:
    """Writes an answer as it comes: reasoning dim, the answer plain."""

    console: Console
    _part: str = field(default="", init=False)

    def say(self, part: str, words: str) -> None:
        """Write more of the reasoning or of the answer."""
        if self._part and self._part != part:
            self.console.print("\n")
        self._part = part
        self.console.print(Text(words, style="dim italic" if part == "reasoning" else ""), end="")

    def end(self, answer: Answer) -> None:
        """Write the timing."""
        self._part = ""
        speed = answer.tokens_per_second
        facts = [
            f"first token after {answer.first_token_seconds:.2f} s",
            f"{answer.completion_tokens} tokens in {answer.seconds:.2f} s",
            *([f"{speed:.1f} tokens/s"] if speed else []),
            *(["cut by the limit of tokens"] if answer.finish_reason == "length" else []),
        ]
        self.console.print()
        err().print(f"[dim]{', '.join(facts)}[/]")


def chat(  # noqa: PLR0913 - a command's options
    question: Annotated[
        str | None,
        typer.Argument(help="What to ask; a dialogue begins without it, and `-` reads it from stdin."),
    ] = None,
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    system: Annotated[str | None, typer.Option(help="What the model is told beforehand.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="The longest answer, in tokens.")] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, max=2, help="0 answers the same each time.")
    ] = None,
    curl: Annotated[
        bool, typer.Option("--curl", help="Print the request for curl instead of asking.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask the model something; the answer comes as it is made, and its timing at the end.

    Without a question it is a dialogue: an empty line or Ctrl-D ends it.
    """
    deployment = load(stack, config_file)
    sampling = Sampling(max_tokens, temperature, system)
    if question == "-":
        question = sys.stdin.read()
    if curl:
        print(_curl(deployment, sampling, question or "Say hello."))
        return
    if question is None and as_json:
        raise typer.BadParameter("--json needs a question")
    asyncio.run(_talk(deployment, sampling, question, as_json=as_json))


async def _talk(stack: Stack, sampling: Sampling, question: str | None, *, as_json: bool) -> None:
    head = stack.settings.head
    console = out()
    printer = None if as_json else Printer(console)
    messages = sampling.beginning()
    # One node is enough to ask: the others need not be in reach.
    async with (
        connected([head]) as links,
        api(stack, must(links, head.name), patience=WAIT_SECONDS) as client,
    ):
        asked = question
        while asked is not None or (asked := await asyncio.to_thread(_read_question)):
            messages.append({"role": "user", "content": asked})
            answer = await ask(
                client, sampling.request(stack.settings.vllm.served_model_name, messages), printer
            )
            messages.append({"role": "assistant", "content": answer.content})
            if question is not None:
                break
            asked = None
    if as_json:
        print(json.dumps({**asdict(answer), "tokens_per_second": answer.tokens_per_second}, indent=2))


def _read_question() -> str | None:
    try:
        return input("\n> ").strip() or None
    except EOFError:
        return None


async def ask(client: httpx.AsyncClient, request: dict[str, Any], printer: Printer | None = None) -> Answer:
    """Ask for one completion, streamed.

    Raises:
        ApiError: The server refuses, or ends in the middle.
    """
    answer, began = Answer(), time.monotonic()
    body = {**request, "stream": True, "stream_options": {"include_usage": True}}
    try:
        async with client.stream("POST", PATH, json=body) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                raise ApiError(f"The server gave no completion: {refusal(response)}")
            async for event in _events(response):
                _take(answer, event, time.monotonic() - began, printer)
    except httpx.HTTPError as error:
        raise ApiError(
            f"The server gave no completion ({type(error).__name__}{f': {error}' if str(error) else ''}): "
            "`spark-vllm status` says how it is."
        ) from None
    answer.seconds = time.monotonic() - began
    if printer:
        printer.end(answer)
    return answer


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        data = line.removeprefix("data: ")
        if data in (line, "[DONE]"):
            continue
        event: dict[str, Any] = json.loads(data)
        if "error" in event:
            raise ApiError(f"The server ended in the middle of its answer: {event['error']}")
        yield event


def _take(answer: Answer, event: dict[str, Any], at: float, printer: Printer | None) -> None:
    if usage := event.get("usage"):
        answer.prompt_tokens, answer.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
    for choice in event["choices"]:
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        delta = choice["delta"]
        # once named reasoning_content: https://docs.vllm.ai/en/latest/features/reasoning_outputs/
        reasoning = delta.get("reasoning") or delta.get("reasoning_content") or ""
        content = delta.get("content") or ""
        if (reasoning or content) and not answer.first_token_seconds:
            answer.first_token_seconds = at
        answer.reasoning += reasoning
        answer.content += content
        for part, words in (("reasoning", reasoning), ("content", content)):
            if words and printer:
                printer.say(part, words)


def _curl(stack: Stack, sampling: Sampling, question: str) -> str:
    messages = [*sampling.beginning(), {"role": "user", "content": question}]
    body = json.dumps(sampling.request(stack.settings.vllm.served_model_name, messages))
    endpoint = stack.outputs().get("endpoint")
    if endpoint is None:
        raise ApiError(f"Stack {stack.name} has no endpoint yet: `pulumi up --stack {stack.name}` makes it.")
    # The key goes by a pipe, so that it stands in no list of processes.
    lines = [f"curl -sS {shlex.quote(endpoint + '/chat/completions')}", "-H 'Content-Type: application/json'"]
    if stack.has_secret("apiKey"):
        key = f"$(pulumi config get apiKey --stack {shlex.quote(stack.name)})"
        lines.append(f'-H @<(printf "Authorization: Bearer %s" "{key}")')
    return " \\\n  ".join([*lines, f"--data {shlex.quote(body)}"])
