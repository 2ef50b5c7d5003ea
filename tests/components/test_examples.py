"""The stack files of the repository: each previews as it stands, and holds neither secret nor salt."""

from __future__ import annotations

import json
import re

import pytest
from ruamel.yaml import YAML

from tests.graph import ROOT, deploy

STACKS = {"spark": 2, "spark-solo": 1, "spark-quad": 4}


@pytest.mark.parametrize(("stack", "nodes"), STACKS.items())
def test_a_stack_file_previews_as_it_stands(stack: str, nodes: int) -> None:
    document = YAML(typ="safe").load(ROOT / f"Pulumi.{stack}.yaml")
    own = {
        key.removeprefix("spark-vllm:"): value
        for key, value in document["config"].items()
        if key.startswith("spark-vllm:")
    }
    graph = deploy(json.loads(json.dumps(own)), preview=True, secrets=False)
    assert len(graph.of_type("Container")) == (nodes + 1 if nodes > 1 else 1)
    assert document["config"]["pulumi:disable-default-providers"] == ["docker"]


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_file_holds_no_secret_and_no_salt(stack: str) -> None:
    text = (ROOT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    assert "encryptionsalt" not in text
    assert "secure:" not in text
    assert not re.search(r"hostKey|apiKey:|rayToken:", text)
