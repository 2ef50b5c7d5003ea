"""`pulumi` killed in the middle: the documented steps, `recover` and `up --refresh`, repair what it began."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest

from lab.deployment import ROOT, Deployment
from tests.deployment.operator import command
from tests.deployment.stack import ask, containers, edit, unchanged

pytestmark = pytest.mark.lab


def kill_at(deployment: Deployment, pattern: str) -> None:
    """Start `up`, and kill it and its plugins when its output matches."""
    argv = [
        "pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--refresh=false",
        f"--stack={deployment.stack}", f"--config-file={deployment.config_file}",
    ]  # fmt: skip
    with subprocess.Popen(
        argv, cwd=ROOT, env=deployment.process_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout
        seen = []
        for line in process.stdout:
            seen.append(line)
            if re.search(pattern, line):
                break
        else:
            pytest.fail(f"{pattern} never came:\n{''.join(seen)}")
        os.killpg(process.pid, signal.SIGKILL)


def recover(deployment: Deployment) -> str:
    """Run `spark-vllm recover`, and return what it said."""
    return command(deployment, "recover", "--yes").stderr


def repaired(deployment: Deployment) -> None:
    """Take the documented steps, and assert that all is well."""
    said = recover(deployment)
    assert f"pulumi up --refresh --stack {deployment.stack}" in said
    deployment.must("up", "--refresh")
    assert ask(deployment).status_code == 200
    unchanged(deployment)


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(r"check-arguments creating", id="gate A"),
        pytest.param(r"Container head deleting original", id="while the head goes"),
        pytest.param(r"Container head creating replacement", id="while the head comes"),
        pytest.param(r"cluster-check creating replacement", id="before the cluster check"),
        pytest.param(r"ready creating replacement", id="while the model loads"),
    ],
)
@pytest.mark.report("K10")
def test_a_change_that_was_killed_is_brought_to_its_end(deployed: Deployment, stage: str) -> None:
    before = containers(deployed)

    def change(config: dict[str, dict[str, object]]) -> None:
        config["nodes"][0]["env"] = {"NCCL_DEBUG": re.sub(r"\W", "_", stage)}  # type: ignore[index]
        config["vllm"]["args"]["max-num-seqs"] = len(stage)  # type: ignore[index]

    edit(deployed, change)
    kill_at(deployed, stage)
    if "check-arguments" in stage:
        assert containers(deployed) == before
        assert ask(deployed).status_code == 200
    repaired(deployed)


def test_a_first_deployment_that_was_killed_is_brought_to_its_end(pair: Deployment) -> None:
    pair.must("destroy")
    kill_at(pair, r"Container worker creating")
    repaired(pair)


def test_a_state_whose_description_a_killed_pulumi_left_empty_is_mended(deployed: Deployment) -> None:
    before = containers(deployed)
    (description,) = deployed.scratch.glob(f".pulumi/stacks/*/{deployed.stack}.json.attrs")
    description.write_bytes(b"")
    refused = deployed.pulumi("stack", "export", f"--stack={deployed.stack}")
    assert "failed to load checkpoint" in refused.output

    repaired(deployed)
    assert containers(deployed) == before


def test_containers_of_a_lost_state_are_found_and_removed(deployed: Deployment) -> None:
    kept = deployed.must("stack", "export", f"--stack={deployed.stack}").output
    state = json.loads(kept)
    state["deployment"]["resources"] = [
        each for each in state["deployment"]["resources"] if each["type"] == "pulumi:pulumi:Stack"
    ]
    lost = deployed.scratch / "lost.json"
    lost.write_text(json.dumps(state))
    deployed.must("stack", "import", f"--stack={deployed.stack}", f"--file={lost}")
    refused = deployed.pulumi("up")
    assert refused.status != 0
    assert "is already in use" in refused.output
    assert ask(deployed, key=deployed.api_key()).status_code == 200

    # that `up` has taken over what it found, but for the containers
    deployed.must("stack", "import", f"--stack={deployed.stack}", f"--file={lost}")
    said = recover(deployed)
    for name in ("ray-head", "ray-worker", "vllm", "spark-vllm-test-worker-tmp", "authorized_keys"):
        assert name in said
    assert containers(deployed) == {}
    for node in ("head", "worker"):
        assert "tmp" not in deployed.lab.docker(node, "volume", "ls", "-q")
        assert "spark-vllm-test" not in deployed.lab.root(
            node, "bash", "-c", "ls -R /home/*/.ssh; cat /home/*/.ssh/authorized_keys"
        )
    assert "is unknown" in recover(deployed)
    deployed.must("up")
    assert ask(deployed).status_code == 200
