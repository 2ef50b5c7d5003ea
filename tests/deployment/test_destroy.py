"""`destroy` of what is left of a deployment, from a machine that has the state and an agent, no more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lab.deployment import ROOT, Deployment
from tests.deployment.stack import CONTAINER, ask, containers, settle, unchanged

pytestmark = pytest.mark.lab


def test_a_half_broken_deployment_goes_without_program_and_settings(pair: Deployment, tmp_path: Path) -> None:
    settle(pair)
    lab = pair.lab
    lab.docker("worker", "kill", "ray-worker")
    lab.docker("head", "rm", "-f", "vllm")
    lab.root("head", "systemctl", "restart", "docker")
    operators = lab.root("worker", "grep", "-v", "restrict", "/home/aurora/.ssh/authorized_keys")

    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    salt = YAML(typ="safe").load(pair.config_file)["encryptionsalt"]
    bare = tmp_path / f"Pulumi.{pair.stack}.yaml"
    bare.write_text(f"encryptionsalt: {salt}\n")
    replace(pair, root=tmp_path, config_file=bare).must("destroy")

    assert containers(pair) == {}
    for node in ("head", "worker"):
        assert (
            lab.docker(node, "volume", "ls", "-q", "--filter", f"label=spark-vllm.stack={pair.stack}") == ""
        )
    assert lab.root("worker", "cat", "/home/aurora/.ssh/authorized_keys") == operators
    assert lab.docker("worker", "image", "ls", "-q", "spark-vllm/stub") != ""


@pytest.mark.report("R13", "P5", "R16")
def test_what_cannot_be_reached_stays_in_the_state_until_it_can(pair: Deployment) -> None:
    settle(pair)
    # A process that has left its parent and its session, as a worker that outlives its engine does.
    stray = "setsid sleep 86399 </dev/null >/dev/null 2>&1 &"
    pair.lab.docker("worker", "exec", "ray-worker", "sh", "-c", stray)
    pair.lab.root("worker", "pgrep", "-f", "sleep 86399")
    pair.lab.root("worker", "systemctl", "stop", "ssh")
    try:
        run = pair.pulumi("destroy")
    finally:
        pair.lab.root("worker", "systemctl", "start", "ssh")
    assert run.status != 0
    assert "192.168.200.13" in run.output
    assert "Traceback" not in run.output
    assert "worker" in in_the_state(pair)
    assert set(containers(pair)) >= {"ray-worker"}

    pair.must("destroy")
    assert in_the_state(pair) == set()
    assert containers(pair) == {}
    assert "86399" not in pair.lab.root("worker", "ps", "-e", "-o", "args")


def in_the_state(pair: Deployment) -> set[str]:
    """The containers that the state knows."""
    state = json.loads(pair.must("stack", "export", f"--stack={pair.stack}").output)
    resources = state["deployment"].get("resources", [])
    return {each["urn"].rpartition("::")[2] for each in resources if each["type"] == CONTAINER}


@pytest.mark.report("S1", "K1")
def test_servers_that_take_few_at_a_time_are_enough(pair: Deployment) -> None:
    with limited(pair):
        pair.must("up", "--refresh")
        unchanged(pair)
        assert ask(pair).status_code == 200
        pair.must("destroy")
    assert containers(pair) == {}


@contextmanager
def limited(pair: Deployment) -> Iterator[None]:
    """The head's sshd drops who comes while two are logging in; the worker's opens two sessions on each."""
    limits = {"head": "MaxStartups 2:100:2", "worker": "MaxSessions 2"}
    file = "/etc/ssh/sshd_config.d/few.conf"
    for node, words in limits.items():
        pair.lab.root(node, "tee", file, stdin=f"{words}\n".encode())
        pair.lab.root(node, "systemctl", "reload", "ssh")
    try:
        yield
    finally:
        for node in limits:
            pair.lab.root(node, "rm", file)
            pair.lab.root(node, "systemctl", "reload", "ssh")
