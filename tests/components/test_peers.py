"""The head's way to its workers: one key, one narrow door each, used by whatever is sent."""

from __future__ import annotations

import json

import pytest

from tests import samples
from tests.graph import Graph, deploy, is_secret


@pytest.fixture(scope="module")
def three() -> Graph:
    return deploy(samples.config(3))


def test_each_worker_has_one_door_for_one_key(three: Graph) -> None:
    commands = three.of_type("Command")
    assert {name for name in commands if name.startswith("fabric-")} == {
        "fabric-key",
        "fabric-peer-worker",
        "fabric-peer-worker2",
    }
    for name in ("fabric-peer-worker", "fabric-peer-worker2"):
        assert "Command fabric-key" in three.needs(f"Command {name}")
        assert "delete" in commands[name].inputs
    assert {commands[name].parent for name in commands if name.startswith("fabric-")} == {
        commands["fabric-key"].parent
    }


def test_the_door_opens_from_the_heads_rails_alone(three: Graph) -> None:
    script = three["Command fabric-peer-worker2"].inputs["stdin"]
    assert not is_secret(script)
    assert "FROM=192.168.200.12,192.168.201.12\n" in script
    assert "PUBLIC_KEY='ssh-ed25519 AAAA'\n" in script


def test_what_is_sent_goes_through_the_door_to_the_pinned_host(three: Graph) -> None:
    sent = three["Command image-worker2"]
    assert "Command fabric-peer-worker2" in three.needs(sent.key)
    assert "Command fabric-peer-worker" not in three.needs(sent.key)
    assert f"PEER_HOST_KEY='{samples.host_key('worker2')}'\n" in sent.inputs["stdin"]
    assert "PEER_ADDRESS=192.168.200.14\n" in sent.inputs["stdin"]
    assert "StrictHostKeyChecking=yes" in sent.inputs["stdin"]
    assert "StrictHostKeyChecking=no" not in json.dumps(sent.inputs)


def test_one_node_has_no_key() -> None:
    assert not any(name.startswith("fabric") for name in deploy(samples.config(1)).of_type("Command"))


def test_another_ssh_port_is_used_but_no_reason_to_send_again(three: Graph) -> None:
    changed = samples.config(3)
    changed["nodes"][2]["ssh"]["port"] = 2222
    sent, before = deploy(changed)["Command image-worker2"], three["Command image-worker2"]
    assert "PEER_PORT=2222\n" in sent.inputs["stdin"]
    assert sent.inputs["triggers"] == before.inputs["triggers"]
    # Without the head in between it is the operator's own way, by a forwarded port perhaps.
    del changed["nodes"][2]["ssh"]["jump"]
    assert "PEER_PORT=22\n" in deploy(changed)["Command image-worker2"].inputs["stdin"]
