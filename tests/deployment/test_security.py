"""Secrets stand nowhere in clear, values arrive as they are, and only the doors that are meant are open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from components.container import CAPABILITIES
from lab.deployment import Deployment
from tests.deployment.listeners import DASHBOARD, EVERYWHERE, Listener, listeners, settings_of, strangers
from tests.deployment.stack import ask, containers, edit, settle

pytestmark = pytest.mark.lab

NASTY = 'it\'s 100% $HOME `id` "q" {x} \\ ; -rf *\n\tü'
NAME = "-tiny $HOME `id` \"q\" 'x' ü"
WATCH = 'while :; do ps -e -o args >>"$0"; sleep 0.1; done'
PROCESSES = "/run/processes"


@dataclass(frozen=True)
class Seen:
    """The pair with values that a shell would spoil, and all that could be seen while it came up.

    Attributes:
        deployment: It.
        texts: What was seen, by where.
        before: What listened on each node beforehand.
    """

    deployment: Deployment
    texts: Mapping[str, str]
    before: Mapping[str, set[Listener]]


@pytest.fixture(scope="module")
def seen(pair: Deployment) -> Iterator[Seen]:
    """The pair from nothing, with these values; as before in its file at the end."""
    settle(pair)
    right = pair.config_file.read_text()
    texts = {"refused up": refused(pair)}
    pair.must("destroy")
    before = {node: listeners(pair, node) for node in pair.lab.status()["nodes"]}
    edit(pair, nasty)
    for node in before:
        pair.lab.root(node, "systemd-run", "--unit=watch-processes", "bash", "-c", WATCH, PROCESSES)
    for what in (("preview", "--diff"), ("up", "--diff")):
        run = pair.must(*what)
        assert '"resourcePreEvent"' in run.log
        texts |= {what[0]: run.output, f"events of {what[0]}": run.log}
    for node in before:
        pair.lab.root(node, "systemctl", "stop", "watch-processes")
        texts[f"processes of {node} meanwhile"] = pair.lab.root(node, "cat", PROCESSES)
    yield Seen(pair, texts, before)
    pair.config_file.write_text(right)


def nasty(config: dict[str, Any]) -> None:
    """Values that are what they are."""
    config["vllm"]["servedModelName"] = NAME
    config["vllm"]["args"] |= {"chat-template": NASTY, "override-generation-config": {"note": [NASTY]}}
    config["vllm"]["env"] = {"NASTY": NASTY}
    config["ray"] = {"env": {"NASTY": f"ray {NASTY}"}}
    config["nodes"][1]["env"] = {"NASTY": f"worker {NASTY}"}


def refused(pair: Deployment) -> str:
    """What an `up` says that is refused."""
    edit(pair, lambda config: config["vllm"].setdefault("args", {}).update({"max-modl-len": 1}))
    run = pair.pulumi("up")
    assert run.status != 0
    edit(pair, lambda config: config["vllm"]["args"].pop("max-modl-len"))
    return run.output + run.log


@pytest.mark.report("V4", "K8", "P9")
def test_secrets_are_nowhere_in_clear(seen: Seen) -> None:
    pair = seen.deployment
    token = pair.must("config", "get", "rayToken", f"--config-file={pair.config_file}").output.strip()
    secrets = [pair.api_key(), token]
    texts = dict(seen.texts)
    texts["outputs"] = pair.must("stack", "output", "--json", f"--stack={pair.stack}").output
    texts["stack file"] = pair.config_file.read_text(encoding="utf-8")
    for file in pair.scratch.rglob("*"):
        if file.is_file():
            texts[str(file)] = file.read_bytes().decode(errors="replace")
    for node in seen.before:
        names = pair.lab.docker(node, "ps", "-a", "--format", "{{.Names}}").split()
        texts[f"docker inspect on {node}"] = pair.lab.docker(node, "inspect", *names)
        texts[f"processes of {node}"] = pair.lab.root(node, "ps", "-e", "-o", "args")
        for name in names:
            texts[f"log of {name}"] = pair.lab.root(node, "sh", "-c", 'docker logs "$1" 2>&1', "sh", name)
    assert [name for name, text in texts.items() if any(secret in text for secret in secrets)] == []
    assert [name for name, text in texts.items() if "PRIVATE KEY" in text] == []
    assert any("stacks" in name for name in texts), "the state itself was not looked at"
    assert "bash -s" in texts["processes of head meanwhile"]


@pytest.mark.report("D1", "D2", "D14")
def test_values_arrive_byte_for_byte(seen: Seen) -> None:
    lab = seen.deployment.lab
    server = json.loads(lab.docker("head", "exec", "vllm", "cat", "/tmp/stub/vllm-serve.json"))  # noqa: S108
    # The image's own entrypoint would have added another `vllm serve`.
    assert server["argv"][:2] == ["serve", "/models/tiny"]
    assert f"--served-model-name={NAME}" in server["argv"]
    assert f"--chat-template={NASTY}" in server["argv"]
    (given,) = [each for each in server["argv"] if each.startswith("--override-generation-config=")]
    assert json.loads(given.partition("=")[2]) == {"note": [NASTY]}
    assert server["env"]["NASTY"] == NASTY
    for node, value in (("head", f"ray {NASTY}"), ("worker", f"worker {NASTY}")):
        raylet = json.loads(lab.docker(node, "exec", f"ray-{node}", "cat", "/tmp/stub/ray-start.json"))  # noqa: S108
        assert raylet["env"]["NASTY"] == value
    assert ask(seen.deployment).json()["model"] == NAME


@pytest.mark.report("V5")
def test_nothing_listens_that_is_not_meant_to(seen: Seen) -> None:
    settings = settings_of(seen.deployment)
    for node in settings.nodes:
        new = listeners(seen.deployment, node.name) - seen.before[node.name]
        assert new, node.name
        assert strangers(new, settings, node) == set(), node.name
        assert DASHBOARD not in {each.port for each in new}
    api = {each.address for each in listeners(seen.deployment, "head") if each.port == settings.vllm.port}
    assert api <= set(EVERYWHERE)
    assert not {each for each in listeners(seen.deployment, "worker") if each.port == settings.vllm.port}


def test_who_shows_no_key_or_token_is_refused(seen: Seen) -> None:
    pair = seen.deployment
    endpoint = pair.output("endpoint")
    body = {"model": NAME, "messages": [{"role": "user", "content": "Hello."}]}
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong"}):
        for answer in (
            httpx.get(f"{endpoint}/models", headers=headers, timeout=30),
            httpx.post(f"{endpoint}/chat/completions", json=body, headers=headers, timeout=30),
        ):
            assert answer.status_code == 401, (headers, answer.url)
    without = ("docker", "exec", "-e", "RAY_AUTH_MODE=disabled", "-e", "RAY_AUTH_TOKEN_PATH=", "ray-head")
    said = pair.lab.root(
        "head",
        "sh",
        "-c",
        '"$@" 2>&1; true',
        "sh",
        *without,
        "ray",
        "status",
        "--address=192.168.200.12:6379",
    )
    assert "Active" not in said
    assert "AuthenticationError" in said or "ConnectionError" in said


def test_containers_have_no_privilege_that_they_do_not_need(seen: Seen) -> None:
    found = {}
    for node in seen.before:
        for name in pair_names(seen.deployment, node):
            found[name] = json.loads(seen.deployment.lab.docker(node, "inspect", name))[0]
    assert set(found) == {"ray-head", "ray-worker", "vllm"} == set(containers(seen.deployment))
    for name, each in found.items():
        host = each["HostConfig"]
        assert host["Privileged"] is False, name
        assert (host["CapDrop"], sorted(host["CapAdd"])) == (["ALL"], sorted(CAPABILITIES)), name
        assert "no-new-privileges" in host["SecurityOpt"], name
        assert not [opt for opt in host["SecurityOpt"] if "unconfined" in opt], name
        mounts = {mount["Destination"]: mount for mount in each["Mounts"]}
        assert set(mounts) == {"/models", "/cache", "/tmp"}, name  # noqa: S108
        assert mounts["/models"]["RW"] is False, name
        assert {mount["Type"] for place, mount in mounts.items() if place != "/models"} == {"volume"}, name
        limits = seen.deployment.lab.root(
            "worker" if name == "ray-worker" else "head", "cat", f"/proc/{each['State']['Pid']}/status"
        )
        effective = dict(line.split(":\t") for line in limits.splitlines() if ":\t" in line)
        # CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, NET_BIND_SERVICE 10: linux/capability.h
        assert int(effective["CapBnd"], 16) == 1 << 0 | 1 << 1 | 1 << 3 | 1 << 10, name
        assert effective["NoNewPrivs"] == "1", name


def pair_names(deployment: Deployment, node: str) -> list[str]:
    """Our containers on a node."""
    return deployment.lab.docker(
        node, "ps", "-a", "--filter=label=spark-vllm.project", "--format={{.Names}}"
    ).split()
