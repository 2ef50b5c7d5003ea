"""The stub's server: its API, its executors, and its ends."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.images.programs import RAY, VLLM, Machine, free_port, until

if TYPE_CHECKING:
    import subprocess

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"properties": {"city": {}}}}}


class Server:
    """A server of the stub and how to ask it."""

    def __init__(self, machine: Machine, *argv: str, **env: str) -> None:
        port = free_port()
        own = ("serve", machine.model(), "--served-model-name=tiny", "--host=127.0.0.1", f"--port={port}")
        self.process = machine.start(*VLLM, *own, *argv, **env)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5)

    def status(self, path: str = "/health") -> int:
        return self.client.get(path).status_code

    def wait(self) -> None:
        until(lambda: self.status() == 200)

    def chat(self, key: str = "", **request: Any) -> httpx.Response:  # noqa: ANN401
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], **request}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return self.client.post("/v1/chat/completions", json=body, headers=headers)


def test_answers_as_an_openai_server_does(head: Machine) -> None:
    parsers = ("--reasoning-parser=qwen3", "--tool-call-parser=qwen3_coder", "--enable-auto-tool-choice")
    server = Server(head, *parsers, '--compilation-config={"a": "it\'s \\"q\\" {x}"}', VLLM_API_KEY="key")
    server.wait()

    assert server.status("/v1/models") == 401
    assert server.chat().status_code == 401
    message = server.chat("key").json()["choices"][0]["message"]
    assert message["content"]
    assert message["reasoning"]
    call = server.chat("key", tools=[TOOL]).json()["choices"][0]["message"]["tool_calls"][0]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "weather",
        {"city": "stub"},
    )
    stream = server.chat("key", stream=True).text
    assert stream.startswith("data: {")
    assert stream.endswith("data: [DONE]\n\n")
    assert server.chat("key", model="other").status_code == 404
    assert "vllm:num_requests_running" in server.client.get("/metrics").text
    argv = head.record("vllm-serve")["argv"]
    assert argv[0] == "serve"
    assert argv[-1] == '--compilation-config={"a": "it\'s \\"q\\" {x}"}'


@pytest.mark.parametrize(
    ("env", "path", "status"),
    [({"STUB_HEALTH": "503"}, "/health", 503), ({"STUB_MODELS": "500"}, "/v1/models", 500)],
)
def test_does_what_its_environment_says(head: Machine, env: dict[str, str], path: str, status: int) -> None:
    server = Server(head, **env)

    assert until(lambda: server.status(path) == status)


@pytest.mark.parametrize(("mode", "status", "content"), [("500", 500, None), ("reasoning_only", 200, None)])
def test_fails_to_chat_as_told(head: Machine, mode: str, status: int, content: str | None) -> None:
    server = Server(head, STUB_CHAT=mode)
    server.wait()

    answer = server.chat()

    assert answer.status_code == status
    if status == 200:
        assert answer.json()["choices"][0]["message"]["content"] is content


def test_fails_when_told_and_refuses_before_it_loads(head: Machine) -> None:
    failing = Server(head, STUB_EXIT_AFTER_S="0.3", STUB_LOAD_S="60").process
    refused = Server(head, "--tensor-parallel-size=2").process

    assert failing.wait(8) == 1
    assert (
        "World size (2) is larger than the number of available GPUs (1)" in refused.communicate(timeout=8)[0]
    )
    assert refused.returncode == 1


def test_ray_executor_needs_all_nodes_and_ends_with_one(head: Machine, worker: Machine) -> None:
    port = free_port()
    head.env["RAY_ADDRESS"] = f"127.0.0.2:{port}"
    start_ray(head, "--head", f"--port={port}", "--node-ip-address=127.0.0.2")
    until(lambda: head.record("ray-start"))
    server = Server(head, "--tensor-parallel-size=2", "--distributed-executor-backend=ray")
    with pytest.raises(AssertionError):
        until(lambda: server.status() == 200, seconds=1.5)
    member = start_ray(worker, f"--address=127.0.0.2:{port}", "--node-ip-address=127.0.0.3")
    server.wait()

    member.kill()

    until(lambda: server.status() == 503, seconds=4)
    assert server.status("/v1/models") == 200
    assert server.process.wait(8) == 0


def test_ray_executor_waits_for_its_own_address(head: Machine) -> None:
    port = free_port()
    start_ray(head, "--head", f"--port={port}", "--node-ip-address=127.0.0.2")
    until(lambda: head.record("ray-start"))
    address = f"127.0.0.2:{port}"

    server = Server(
        head,
        "--distributed-executor-backend=ray",
        VLLM_HOST_IP="127.0.0.9",
        STUB_JOIN_S="1",
        RAY_ADDRESS=address,
    )

    assert "'node:127.0.0.9': 0.001" in server.process.communicate(timeout=8)[0]


def test_mp_ranks_meet_and_a_lost_one_goes_unnoticed(head: Machine, worker: Machine) -> None:
    common = ("-tp=2", "--nnodes=2", "--master-addr=127.0.0.2", f"--master-port={free_port()}")
    rank = Server(worker, *common, "--node-rank=1", "--headless", STUB_LOAD_S="2")
    server = Server(head, *common)
    with pytest.raises(AssertionError):
        until(lambda: server.status() == 200, seconds=1)
    server.wait()
    assert server.chat().status_code == 200
    with pytest.raises(httpx.ConnectError):
        rank.status()

    rank.process.kill()
    rank.process.wait()

    time.sleep(0.5)
    with pytest.raises(httpx.ReadTimeout):
        server.chat()
    assert server.status() == 200


def start_ray(machine: Machine, *argv: str) -> subprocess.Popen[str]:
    return machine.start(*RAY, "start", "--block", "--num-gpus=1", *argv)
