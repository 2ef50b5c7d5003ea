"""The lab's stack file: a person's changes stay in it, and one of other nodes is begun anew."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ruamel.yaml import YAML

from lab.deployment import Deployment
from tests.deployment.operator import command
from tests.deployment.stack import Config, edit
from tests.samples import host_key

pytestmark = pytest.mark.lab


def config(deployment: Deployment) -> Config:
    settings: Config = YAML(typ="safe").load(deployment.config_file)["config"]
    return settings


def test_what_a_person_has_changed_stays(pair: Deployment) -> None:
    right = pair.config_file.read_text()
    edit(pair, lambda settings: settings["vllm"].update({"servedModelName": "mine"}))
    mine = config(pair)
    pair.configure(mine["spark-vllm:image"]["ref"], "vllm.args.max-num-seqs=99")
    assert config(pair) == mine
    pair.config_file.write_text(right)


def test_a_stack_of_nodes_that_are_gone_begins_anew(pair: Deployment) -> None:
    assert not pair.forget_other_nodes()
    assert pair.config_file.exists()
    old = replace(pair, stack="old", config_file=pair.config_file.with_name("Pulumi.old.yaml"))
    assert not old.forget_other_nodes()
    old.config_file.write_text(pair.config_file.read_text())
    edit(old, lambda settings: settings["nodes"][1]["ssh"].update({"hostKey": host_key("gone")}))
    assert old.forget_other_nodes()
    assert not old.config_file.exists()


def beside(pair: Deployment, name: str, text: str | None = None) -> Deployment:
    """The stack with another file."""
    other = replace(pair, config_file=pair.config_file.with_name(f"Pulumi.{name}.yaml"))
    other.config_file.unlink(missing_ok=True)
    if text is not None:
        other.config_file.write_text(text)
    return other


def test_an_image_is_pinned_as_the_registry_has_it(pair: Deployment) -> None:
    right = pair.config_file.read_text()
    other = beside(pair, "unpinned", re.sub(r"@sha256:[0-9a-f]{64}", "", right))
    assert config(other) != config(pair)
    said = command(other, "discover", "--pin", "--yes").stderr
    assert config(other) == config(pair)
    assert "+    ref: " in said
    assert "pinned already" in command(other, "discover", "--pin", "--yes").stderr


def test_an_image_that_the_registry_has_not_is_named(pair: Deployment) -> None:
    right = pair.config_file.read_text()
    other = beside(pair, "unknown", re.sub(r"@sha256:[0-9a-f]{64}", "-not-there", right))
    before = other.config_file.read_text()
    said = command(other, "discover", "--pin", "--yes", status=1).stderr
    assert re.search(r"has no \S+-not-there to pin: .*no such manifest", said)
    assert other.config_file.read_text() == before


def test_a_worker_without_an_address_is_heard_on_the_cable(pair: Deployment) -> None:
    status = pair.lab.status()
    head = status["nodes"]["head"]
    way = (f"--head={head['user']}@{head['host']}:{head['port']}", f"--sysfs={status['sysfs']}", "--yes")
    other = beside(pair, "first")
    said = command(other, "discover", *way).stderr
    heard = re.search(r"--worker (\S+@fe80::\S+%enp1s0f0np0)", said)
    assert heard, said
    command(other, "discover", *way, f"--worker={heard[1]}")
    found, wanted = config(other)["spark-vllm:nodes"], config(pair)["spark-vllm:nodes"]
    assert found[1]["ssh"].pop("host") == heard[1].partition("@")[2]
    wanted[1]["ssh"].pop("host")
    assert [(node["name"], node["ssh"], node["rails"]) for node in found] == [
        (node["name"], node["ssh"], node["rails"]) for node in wanted
    ]
