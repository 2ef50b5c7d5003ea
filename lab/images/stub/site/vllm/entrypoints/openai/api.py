"""The HTTP API, whose answers the environment decides.

STUB_HEALTH, STUB_MODELS: a status. STUB_CHAT: `ok`, `hang`, `500`, `reasoning_only`, or
`raw`, as of a model that no parser understands.
"""

from __future__ import annotations

import hmac
import json
import os
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_OK, _UNAUTHORIZED, _NOT_FOUND, _FAILED, _UNAVAILABLE = 200, 401, 404, 500, 503
_METRICS = (
    ("vllm:num_requests_running", "gauge", 0),
    ("vllm:num_requests_waiting", "gauge", 0),
    ("vllm:kv_cache_usage_perc", "gauge", 0),
    ("vllm:generation_tokens_total", "counter", 8),
    ("vllm:prompt_tokens_total", "counter", 8),
)


@dataclass
class Served:
    """What the API is of."""

    names: list[str]
    root: str
    max_model_len: int
    keys: list[str]
    tools: bool
    reasoning: bool
    healthy: bool = True
    stuck: bool = False
    requests: int = 0
    created: int = field(default_factory=lambda: int(time.time()))


class Api(ThreadingHTTPServer):
    """The server; it holds its port from the start and answers once told to."""

    daemon_threads = True

    def __init__(self, host: str | None, port: int, served: Served) -> None:
        """Take the port.

        Raises:
            OSError: It is taken.
        """
        self.served = served
        super().__init__((host or "", port), _Handler, bind_and_activate=False)
        self.server_bind()

    def start(self) -> None:
        """Answer from now on."""
        self.server_activate()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        served = self.server.served
        if self.path == "/health":
            forced = os.environ.get("STUB_HEALTH")
            self._send(int(forced) if forced else _OK if served.healthy else _UNAVAILABLE, b"")
        elif self.path == "/metrics":
            labels = f'{{model_name="{served.names[0]}"}}'
            lines = [f"# TYPE {name} {kind}\n{name}{labels} {value}" for name, kind, value in _METRICS]
            self._send(_OK, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4")
        elif self.path == "/version":
            self._send_json(_OK, {"version": os.environ.get("STUB_VLLM_VERSION", "")})
        elif self.path == "/v1/models" and self._authorized():
            cards = [self._card(name) for name in served.names]
            self._send_json(int(os.environ.get("STUB_MODELS", _OK)), {"object": "list", "data": cards})
        elif self.path != "/v1/models":
            self._refuse(_NOT_FOUND, "Not Found", "NotFoundError")

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path == "/tokenize":
            tokens = list(str(request.get("prompt", request.get("messages", ""))).encode())
            most = self.server.served.max_model_len
            self._send_json(_OK, {"count": len(tokens), "max_model_len": most, "tokens": tokens})
        elif self.path != "/v1/chat/completions":
            self._refuse(_NOT_FOUND, "Not Found", "NotFoundError")
        elif self._authorized():
            self._chat(request)

    def _chat(self, request: dict[str, Any]) -> None:
        served, mode = self.server.served, os.environ.get("STUB_CHAT", "ok")
        name = request.get("model") or served.names[0]
        if mode == "hang" or served.stuck:
            threading.Event().wait()
        if mode == "500" or not served.healthy:
            self._refuse(
                _FAILED, "EngineCore encountered an issue. See stack trace (above).", "InternalServerError"
            )
        elif name not in served.names:
            self._refuse(_NOT_FOUND, f"The model `{name}` does not exist.", "NotFoundError")
        else:
            message, reason = self._message(request, mode)
            answer = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": name}
            usage = {"prompt_tokens": 8, "completion_tokens": 8, "total_tokens": 16}
            if request.get("stream"):
                self._stream(answer, message, reason, usage)
            else:
                choice: dict[str, Any] = {
                    "index": 0,
                    "message": message,
                    "finish_reason": reason,
                    "logprobs": None,
                }
                self._send_json(
                    _OK, {**answer, "object": "chat.completion", "choices": [choice], "usage": usage}
                )

    def _message(self, request: dict[str, Any], mode: str) -> tuple[dict[str, Any], str]:
        served = self.server.served
        message: dict[str, Any] = {"role": "assistant", "content": "Hello from the stub.", "tool_calls": []}
        if served.reasoning:
            message["reasoning"] = "The user expects an answer."
        tools = request.get("tools")
        if mode == "reasoning_only":
            message.update(content=None, reasoning="The user expects an answer.")
            return message, "length"
        if mode == "raw":
            words = '<tool_call>{"name": "any"}</tool_call>' if tools else "<think>Well.</think>Hello."
            return {**message, "content": words, "reasoning": None}, "stop"
        if tools and served.tools and request.get("tool_choice", "auto") != "none":
            function = tools[0]["function"]
            names = function.get("parameters", {}).get("properties", {})
            call = {"name": function["name"], "arguments": json.dumps(dict.fromkeys(names, "stub"))}
            message.update(content=None, tool_calls=[{"id": "call_1", "type": "function", "function": call}])
            return message, "tool_calls"
        return message, "stop"

    def _stream(
        self, answer: dict[str, Any], message: dict[str, Any], reason: str, usage: dict[str, int]
    ) -> None:
        self.send_response(_OK)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        head = {**answer, "object": "chat.completion.chunk"}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if message.get("reasoning"):
            deltas.append({"reasoning": message["reasoning"]})
        if message["tool_calls"]:
            deltas.append({"tool_calls": [{"index": 0, **message["tool_calls"][0]}]})
        deltas += [{"content": f"{word} "} for word in (message["content"] or "").split()]
        choices: list[dict[str, Any]]
        choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": reason})
        events = [json.dumps({**head, "choices": [choice]}) for choice in choices]
        events += [json.dumps({**head, "choices": [], "usage": usage}), "[DONE]"]
        for event in events:
            self.wfile.write(f"data: {event}\n\n".encode())
            self.wfile.flush()

    def _card(self, name: str) -> dict[str, Any]:
        served = self.server.served
        return {
            "id": name,
            "object": "model",
            "created": served.created,
            "owned_by": "vllm",
            "root": served.root,
            "max_model_len": served.max_model_len,
        }

    def _authorized(self) -> bool:
        keys = self.server.served.keys
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        known = not keys or any(hmac.compare_digest(given, key) for key in keys)
        if not known:
            self._send_json(_UNAUTHORIZED, {"error": "Unauthorized"})
        return known

    def _refuse(self, status: int, words: str, kind: str) -> None:
        self._send_json(status, {"error": {"message": words, "type": kind, "param": None, "code": status}})

    def _send_json(self, status: int, content: object) -> None:
        self._send(status, json.dumps(content).encode())

    def _send(self, status: int, data: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
