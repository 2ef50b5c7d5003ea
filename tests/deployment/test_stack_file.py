"""The lab's stack file: a person's changes stay in it, and one of other nodes is begun anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ruamel.yaml import YAML

from lab.deployment import Deployment
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
