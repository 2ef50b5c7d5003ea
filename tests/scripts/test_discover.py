"""discover: what it makes of a node's facts, and how it treats a stack file that a person has edited."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from components.settings import parse
from scripts.discover import Facts, _addresses, _beside, _intended, _merge, _node, _set
from scripts.ssh import Address
from tests import samples

FACTS = """hostname=spark-1
arch=aarch64
rail=enP2p1s0f0np0 192.168.201.12/24 roceP2p1s0f0 9000 200
rail=enp1s0f0np0 192.168.200.12/24 rocep1s0f0 9000 200
rail=enp1s0f1np1 none rocep1s0f1 1500 200
"""


def nodes() -> list[dict[str, Any]]:
    head = _node("head", Address("aurora", "10.1.230.180"), samples.host_key("head"), Facts.read(FACTS), {})
    worker = _node(
        "worker",
        Address("aurora", "192.168.200.13", 2222),
        samples.host_key("worker"),
        Facts.read(FACTS.replace(".12/", ".13/")),
        {},
        "head",
    )
    return [head, worker]


@pytest.mark.report("F5", "F9")
def test_twins_stand_in_the_same_order_and_ports_without_address_are_left_out() -> None:
    assert [rail["interface"] for rail in nodes()[0]["rails"]] == ["enp1s0f0np0", "enP2p1s0f0np0"]


def test_a_worker_without_addresses_gets_what_the_file_says_or_what_is_beside_the_heads() -> None:
    facts = re.sub(r"192[0-9./]+", "none", FACTS)
    known = [{}, {}, {"rails": [{"interface": "enp1s0f0np0", "address": "10.0.0.9/24"}]}]
    intended = _beside(nodes()[0], 2) | _intended(known, 2)
    worker = _node(
        "worker2",
        Address("aurora", "fe80::1%enp1s0f0np0"),
        samples.host_key("worker2"),
        Facts.read(facts),
        intended,
    )
    assert [rail["address"] for rail in worker["rails"]] == ["10.0.0.9/24", "192.168.201.14/24"]


def test_the_worker_is_behind_the_head() -> None:
    head, worker = nodes()
    assert "jump" not in head["ssh"]
    assert worker["ssh"]["jump"] == "head"
    assert worker["ssh"]["port"] == 2222
    assert "port" not in head["ssh"]


def test_what_a_person_wrote_stays_and_the_result_is_accepted() -> None:
    yaml = YAML()
    document = yaml.load(
        "config:\n"
        "  # why this image\n"
        f"  spark-vllm:image: {{ref: 'registry.invalid/vllm:v1@sha256:{'ab' * 32}'}}\n"
        "  spark-vllm:nodes:\n"
        "    - name: head # the one near the window\n"
        "      ssh: {host: 10.9.9.9, user: aurora}\n"
        "      env: {NCCL_DEBUG: INFO}\n"
    )
    config = document["config"]
    for setting in ("vllm.servedModelName=tiny", "model.directory=/m/tiny"):
        _set(config, setting, yaml)
    _merge(config, nodes())
    written = io.StringIO()
    yaml.dump(document, written)
    assert "# why this image" in written.getvalue()
    assert "# the one near the window" in written.getvalue()
    own = {key.removeprefix("spark-vllm:"): value for key, value in config.items() if "spark-vllm:" in key}
    settings = parse(samples.raw(own))
    assert settings.head.env == {"NCCL_DEBUG": "INFO"}
    assert settings.head.ssh.host == "10.1.230.180"
    assert str(settings.workers[0].address) == "192.168.200.13"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("aurora@spark-1", "spark-1", 22),
        ("aurora@10.1.230.180:2222", "10.1.230.180", 2222),
        ("aurora@fe80::1%enP2p1s0f0np0", "fe80::1%enP2p1s0f0np0", 22),
        ("aurora@[fe80::1%enP2p1s0f0np0]:2222", "fe80::1%enP2p1s0f0np0", 2222),
    ],
)
def test_an_address_may_be_link_local(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert address == Address("aurora", host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "aurora", "@host", "aurora@", "aurora@host:ssh", "aurora@[fe80::1"])
def test_an_address_has_a_user_and_a_host(text: str) -> None:
    with pytest.raises(ValueError, match="is not user@host"):
        Address.parse(text)


@pytest.mark.parametrize("setting", ["", "vllm=1", "vllm.port", "image.ref.name=x", "image.ref.name.more=x"])
def test_a_setting_that_leads_nowhere_is_refused(setting: str) -> None:
    with pytest.raises(typer.BadParameter, match="--set"):
        _set({"spark-vllm:image": {"ref": "a"}}, setting, YAML())


def test_without_addresses_the_files_nodes_are_looked_at_again() -> None:
    head, worker = nodes()
    assert _addresses(None, [], [head, worker], "Pulumi.spark.yaml") == [
        Address("aurora", "10.1.230.180"),
        Address("aurora", "192.168.200.13", 2222),
    ]
    with pytest.raises(typer.BadParameter, match=r"Pulumi\.spark\.yaml names no nodes"):
        _addresses(None, [], [], "Pulumi.spark.yaml")
    with pytest.raises(typer.BadParameter, match="--head"):
        _addresses(None, ["aurora@host"], [head], "Pulumi.spark.yaml")
