"""What is no change to the deployment, and restarts and runs nothing: a row of the README's table."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lab.deployment import ROOT, Deployment
from tests.deployment.stack import containers, edit, unchanged

pytestmark = pytest.mark.lab

NOTHING = pytest.mark.row(
    "SSH port or jump, the operator's key or machine, comments or the order of keys in the stack file, "
    "a new version of this program with the same meaning",
    "no container; connections and Commands may show as updated, and run nothing",
)


@NOTHING
def test_a_comment_and_the_order_of_keys_change_nothing(deployed: Deployment) -> None:
    text = deployed.config_file.read_text()
    deployed.config_file.write_text(f"# a comment\n{text}")
    edit(deployed, lambda config: config.update({"vllm": config.pop("vllm")}))
    assert deployed.pulumi("preview", "--expect-no-changes").status == 0


@NOTHING
@pytest.mark.report("P6", "K5", "K6")
def test_another_way_to_a_node_restarts_and_runs_nothing(deployed: Deployment) -> None:
    before, right = containers(deployed), deployed.config_file.read_text()
    deployed.lab.root("worker", "/usr/sbin/sshd", "-p", "2222")

    edit(deployed, lambda config: config["nodes"][1]["ssh"].update({"port": 2222}))
    assert planned(deployed) == {"same", "update"}
    run = deployed.must("up")
    assert {event.op for event in run.events if event.name != "test"} == {"same", "update"}
    unchanged(deployed)
    assert containers(deployed) == before

    # The lab's operator has no other way to the worker than by the head, and a preview takes none.
    edit(deployed, lambda config: config["nodes"][1]["ssh"].pop("jump"))
    assert planned(deployed) == {"same", "update"}
    deployed.config_file.write_text(right)
    deployed.must("up")
    assert containers(deployed) == before


@NOTHING
@pytest.mark.report("P6")
def test_another_operators_machine_sees_no_difference(deployed: Deployment, tmp_path: Path) -> None:
    program = shutil.copytree(
        ROOT, tmp_path / "elsewhere", ignore=shutil.ignore_patterns(".git", ".local", ".*cache", ".venv")
    )
    (program / ".venv").symlink_to(ROOT / ".venv")
    for script in (program / "scripts" / "remote").iterdir():
        script.write_text(f"{script.read_text()}# another version\n")
    with another_agent(deployed, tmp_path) as socket:
        there = replace(deployed, root=program, agent=socket)
        unchanged(there)
        source = program / "components" / "node.py"
        code = source.read_text()
        assert 'f"spark-vllm-{node.name}"' in code
        source.write_text(code.replace('f"spark-vllm-{node.name}"', 'f"another-alias-{node.name}"'))
        assert planned(there) == {"same", "update"}


def planned(deployment: Deployment) -> set[str]:
    """What a preview says of all but the network's confirmations.

    Only when the network's step has looked is it known that it changed nothing; until then its
    confirmation is planned.
    """
    events = deployment.must("preview").events
    return {event.op for event in events if not event.name.startswith("network-confirm-")}


@contextmanager
def another_agent(deployment: Deployment, place: Path) -> Iterator[Path]:
    """An agent with a key of its own, which the nodes let in."""
    key, socket = place / "key", place / "agent"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    for node in deployment.lab.status()["nodes"]:
        words = f"echo '{public}' >>/home/aurora/.ssh/authorized_keys"
        deployment.lab.root(node, "sh", "-c", words)
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as agent:
        while not socket.exists():
            time.sleep(0.05)
        subprocess.run(
            ["ssh-add", "-q", str(key)], env={"SSH_AUTH_SOCK": str(socket), "PATH": "/usr/bin"}, check=True
        )
        yield socket
        agent.terminate()
