"""`destroy` of what is left of a deployment, from a machine that has the state and an agent, no more."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lab.deployment import ROOT, Deployment
from tests.deployment.stack import containers, edit, settle

pytestmark = pytest.mark.lab


def test_image_and_caches_go_if_the_settings_say_so(pair: Deployment) -> None:
    right = pair.config_file.read_text()
    edit(pair, lambda config: config["image"].update({"removeOnDestroy": True}))
    settle(pair)
    lab = pair.lab
    kept = ("volume", "ls", "-q", "--filter", "name=spark-vllm-cache-")
    assert all(lab.docker(node, *kept) for node in ("head", "worker"))
    pair.must("destroy")
    pair.config_file.write_text(right)
    for node in ("head", "worker"):
        assert lab.docker(node, "image", "ls", "-q", "spark-vllm/stub") == ""
        assert lab.docker(node, *kept) == ""


@pytest.mark.fault("half of a deployment is broken when it is destroyed")
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
