"""The network in the graph, and what its scripts are told."""

from __future__ import annotations

import json

import pytest

from components.network import link_inputs, network_inputs, stranded
from components.node import ssh_options
from components.settings import parse
from tests import samples
from tests.graph import Graph, deploy

LINK_LOCAL = "fe80::21:a0ff:fe46:100%enp1s0f0np0"


@pytest.fixture(scope="module")
def three() -> Graph:
    return deploy(samples.config(3))


def behind_link_local() -> samples.Config:
    configuration = samples.config()
    configuration["nodes"][1]["ssh"]["host"] = LINK_LOCAL
    return configuration


def test_the_heads_network_comes_first_and_the_links_last(three: Graph) -> None:
    head = three.needs("Command network-head")
    assert {"Command check-arguments", "Command preflight-worker2"} <= head
    for worker in ("worker", "worker2"):
        assert {"Command network-head", "Command network-confirm-head"} <= three.needs(
            f"Command network-{worker}"
        )
    assert "Command network-confirm-worker" in three.needs("Command network-worker2")
    confirmed = {f"Command network-confirm-{name}" for name in ("head", "worker", "worker2")}
    assert confirmed <= three.needs("Command link-head")


def test_all_that_destroy_does_on_a_worker_comes_before_its_addresses_go(three: Graph) -> None:
    harmless = (
        "Provider",
        "docker",
        "Command network",
        "Command preflight",
        "Command check",
        "Command image-head",
    )
    for key, resource in three.resources.items():
        if "worker2" in key and resource.type.partition(":")[0] in ("docker", "command"):
            assert key.startswith(harmless) or "Command network-worker2" in three.needs(key), key
    assert "Command network-worker" in three.needs("Volume tmp-worker")
    assert "Command network-worker" in three.needs("Command fabric-peer-worker")


def test_a_confirmation_follows_every_change_of_its_node(three: Graph) -> None:
    confirm = three["Command network-confirm-worker"].inputs
    assert confirm["create"].endswith("bash -s -- confirm")
    assert len(confirm["triggers"]) == 2
    network = three["Command network-worker"].inputs
    assert network["create"] == network["update"]
    assert network["delete"].endswith("bash -s -- remove")


def test_an_unmanaged_network_keeps_its_resource_and_does_nothing() -> None:
    graph = deploy(samples.config(network={"manage": False}))
    assert "MANAGE=false\n" in graph["Command network-worker"].inputs["stdin"]
    assert "Command network-confirm-worker" not in graph.resources
    assert "Command network-worker" in graph.needs("Command link-head")


def test_one_node_has_no_network() -> None:
    assert not any("network" in name for name in deploy(samples.config(1)).of_type("Command"))


def test_the_scripts_know_the_way_through_the_heads_interface() -> None:
    configuration = samples.config()
    configuration["nodes"][1]["rails"][0]["interface"] = "enp1s0f1np1"
    settings = parse(samples.raw(configuration))
    inputs = network_inputs(settings, settings.workers[0], project="spark-vllm", stack="test")
    assert inputs["RAILS"].splitlines()[0] == "enp1s0f1np1 192.168.200.13/24 enp1s0f0np0"
    assert inputs["REMOVE"] == "false"
    assert (
        network_inputs(settings, settings.head, project="p", stack="s")["RAILS"]
        .splitlines()[0]
        .endswith(" -")
    )


def test_a_link_check_names_each_peer_on_each_rail() -> None:
    settings = samples.settings(3)
    assert link_inputs(settings, settings.workers[0])["RAILS"].splitlines()[1] == (
        "enP2p1s0f0np0 192.168.201.13/24 192.168.201.0/24 roceP2p1s0f0 192.168.201.12,192.168.201.14"
    )


def test_a_worker_that_the_heads_new_rails_would_not_reach_is_known() -> None:
    assert stranded(samples.settings()) == []
    configuration = samples.config()
    for node in configuration["nodes"]:
        node["rails"][0]["address"] = node["rails"][0]["address"].replace("192.168.200", "192.168.210")
    assert stranded(parse(samples.raw(configuration))) == ["192.168.200.13"]
    configuration["nodes"][1]["ssh"]["host"] = LINK_LOCAL
    assert stranded(parse(samples.raw(configuration))) == []


def test_a_worker_is_reached_by_its_link_local_address() -> None:
    worker = deploy(behind_link_local())["docker docker-worker"].inputs
    assert worker["host"] == "ssh://aurora@[fe80::21:a0ff:fe46:100%25enp1s0f0np0]:22"
    proxy = next(option for option in json.loads(worker["sshOpts"]) if option.startswith("ProxyCommand="))
    assert "-W '[%h]:%p' aurora@10.1.230.180" in proxy


def test_a_percent_sign_of_the_jump_host_is_not_expanded() -> None:
    configuration = behind_link_local()
    configuration["nodes"][0]["ssh"]["host"] = "fe80::1%eth0"
    settings = parse(samples.raw(configuration))
    assert "aurora@fe80::1%%eth0" in ssh_options(settings.workers[0], settings.head)[-1]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("fe80::1", "fe80::1 is link-local and leads nowhere without an interface"),
        ("192.168.200.13%enp1s0f0np0", "only a link-local address"),
        ("fe80::1%", "nodes[1].ssh.host is malformed"),
        ("fe80::1%eth0;reboot", "nodes[1].ssh.host is malformed"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(host: str, words: str) -> None:
    configuration = samples.config()
    configuration["nodes"][1]["ssh"]["host"] = host
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what the test reads
        parse(samples.raw(configuration))
    assert words in str(caught.value)
