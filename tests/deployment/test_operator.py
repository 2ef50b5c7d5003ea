"""The operator's commands against a deployment that serves, and against one with faults."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab.deployment import ROOT, Deployment
from tests.deployment.operator import Terminal, command, report
from tests.deployment.stack import another_env, another_flag, edit

pytestmark = pytest.mark.lab


@contextmanager
def paused(deployment: Deployment, node: str, container: str) -> Iterator[None]:
    deployment.lab.docker(node, "pause", container)
    try:
        yield
    finally:
        deployment.lab.docker(node, "unpause", container)


@contextmanager
def changed(deployment: Deployment) -> Iterator[None]:
    """The stack file may be edited, and is as before afterwards."""
    right = deployment.config_file.read_text()
    try:
        yield
    finally:
        deployment.config_file.write_text(right)


def test_status_says_that_all_is_well(deployed: Deployment) -> None:
    found = report(deployed, "status")
    assert found["healthy"]
    assert found["server"]["answers"]
    assert found["server"]["running"] == 0
    head, worker = found["nodes"]
    assert {each["name"]: each["state"] for each in head["containers"]} == {
        "vllm": "running",
        "ray-head": "running",
    }
    assert [each["name"] for each in worker["containers"]] == ["ray-worker"]
    assert head["ray_nodes"] == ["head", "worker"]
    assert [(rail["state"], rail["mtu"]) for rail in worker["rails"]] == [("up", 9000)] * 2
    assert worker["memory_total"] > worker["memory_available"] > 0
    screen = command(deployed, "status").stdout
    assert "serving" in screen
    assert "Ray 2 of 2 nodes" in screen


def test_status_watched_shows_what_becomes_of_it(deployed: Deployment) -> None:
    with Terminal(deployed, "status", "--watch=1", "--timeout=2") as screen:
        screen.shows("test: serving")
        with paused(deployed, "head", "vllm"):
            screen.shows("not serving")
        screen.shows("test: serving")
        assert screen.end() == 0


@pytest.mark.report("Q2")
def test_status_shows_what_is_broken(deployed: Deployment) -> None:
    with paused(deployed, "head", "vllm"):
        found = report(deployed, "status", "--timeout=3", status=1)
    assert not found["server"]["answers"]
    assert "no answer within 3 s" in found["server"]["fault"]
    (vllm,) = [each for each in found["nodes"][0]["containers"] if each["name"] == "vllm"]
    assert vllm["state"] == "paused"


def test_doctor_finds_nothing_wrong_and_then_what_is(deployed: Deployment) -> None:
    findings = report(deployed, "doctor")
    assert not [each for each in findings if each["level"] == "problem"]
    checks = {each["check"] for each in findings if each["level"] == "ok"}
    assert {
        "SSH",
        "Docker",
        "rails",
        "memory",
        "clock",
        "image",
        "model",
        "containers",
        "API",
        "API key",
    } <= checks

    deployed.lab.unplug("worker", 0)
    try:
        findings = report(deployed, "doctor", status=1)
    finally:
        deployed.lab.plug("worker", 0)
    faults = [each for each in findings if each["level"] == "problem"]
    assert {(each["node"], each["check"]) for each in faults} >= {("head", "rails")}
    assert all(each["remedy"] for each in faults)


def test_logs_are_merged_labelled_and_in_the_order_of_time(deployed: Deployment) -> None:
    # what failed earlier is told after them, apart
    merged, _, _ = command(deployed, "logs").stdout.partition("\n\n")
    lines = [line.split(maxsplit=2) for line in merged.splitlines()]
    assert {label for _, label, *_ in lines} == {"vllm@head", "ray-head", "ray-worker"}
    times = [time for time, *_ in lines]
    assert times == sorted(times)
    only, _, _ = command(deployed, "logs", "worker", "--tail=1").stdout.partition("\n\n")
    assert len(only.splitlines()) == 1
    assert "ray-worker" in only


def test_logs_followed_go_on_when_a_container_starts_again(deployed: Deployment) -> None:
    with Terminal(deployed, "logs", "vllm", "--follow", "--tail=1") as screen:
        screen.shows("vllm@head")
        deployed.lab.docker("head", "restart", "--time=5", "vllm")
        screen.shows("spark-vllm: start")
        screen.shows("Application startup complete")
        screen.end()


def test_logs_of_a_name_that_is_not_there_say_which_are(deployed: Deployment) -> None:
    said = command(deployed, "logs", "vlm", status=1).stderr
    assert "vlm" in said
    assert "ray-head, ray-worker" in said


def test_chat_answers_and_says_how_long_it_took(deployed: Deployment) -> None:
    done = command(deployed, "chat", "Say hello.")
    assert done.stdout.strip() == "Hello from the stub."
    assert "tokens in" in done.stderr
    answer = report(deployed, "chat", "Say hello.")
    assert answer["content"].strip() == "Hello from the stub."
    assert answer["completion_tokens"] == 8


@pytest.mark.report("Q9")
def test_the_request_for_curl_answers_and_holds_no_key(deployed: Deployment) -> None:
    line = command(deployed, "chat", "--curl", "What's up?").stdout
    assert deployed.api_key() not in line
    # the stack's file is not the project's own here
    line = line.replace("--stack test", f"--stack test --config-file {deployed.config_file}")
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env=deployed.process_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Hello from the stub." in done.stdout


def test_plan_says_what_restarts_and_what_does_not(deployed: Deployment) -> None:
    assert report(deployed, "plan")["containers"] == []
    with changed(deployed):
        edit(deployed, another_flag)
        found = report(deployed, "plan")
        assert found["order"] == ["stop vllm", "start vllm"]
        assert found["kept"] == ["ray-head", "ray-worker"]
        assert "--max-num-seqs" in found["containers"][0]["reasons"][0]
        assert found["outage_seconds"] == deployed.output("loadSeconds")
        edit(deployed, another_env(0))
        text = command(deployed, "plan", "--markdown").stdout
    assert text.startswith("### 🔴")
    assert "1. stop ray-head" in text


def test_plan_of_a_mistake_names_the_key(deployed: Deployment) -> None:
    with changed(deployed):
        edit(deployed, lambda config: config["vllm"].update({"gpuMemoryUtilisation": 0.5}))
        said = command(deployed, "plan", status=1).stderr
    assert "did you mean gpuMemoryUtilization?" in said
    assert "Traceback" not in said


def test_prune_removes_what_nothing_uses_and_only_that(deployed: Deployment) -> None:
    lab = deployed.lab
    used = lab.docker("head", "inspect", "--format={{.Config.Image}}", "vllm").strip()
    lab.docker("head", "volume", "create", "spark-vllm-cache-old")
    lab.root("head", "bash", "-c", "tar -c /etc/hostname | docker import - spark-vllm/old:1")
    found = report(deployed, "prune")
    kinds = {(each["node"], each["kind"], each["name"]) for each in found}
    assert kinds >= {("head", "image", "spark-vllm/old:1"), ("head", "cache", "spark-vllm-cache-old")}
    assert used not in {each["name"] for each in found}
    said = command(deployed, "prune", "--yes").stdout
    assert "spark-vllm/old:1" in said
    assert report(deployed, "prune") == []
    assert lab.docker("head", "image", "ls", "-q", "spark-vllm/old").strip() == ""
    assert report(deployed, "status")["healthy"]


def test_a_stack_that_is_not_there_is_told_in_a_sentence(deployed: Deployment) -> None:
    done = subprocess.run(
        [str(ROOT / "bin" / "spark-vllm"), "status", "--stack=nosuch"],
        env=deployed.process_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "There is no Pulumi.nosuch.yaml" in done.stderr
    assert "Traceback" not in done.stderr
