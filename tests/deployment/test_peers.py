"""The door between the nodes on real sshd: good for the receiver's words, from the head, for nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from components.remote import compose
from lab.deployment import Deployment
from lab.topology import USER
from tests.deployment.stack import settle
from tests.samples import host_key

pytestmark = pytest.mark.lab

KEY = f"/home/{USER}/.ssh/spark-vllm-test"
WORKER = "192.168.200.13"


@pytest.fixture(scope="module")
def served(pair: Deployment) -> Iterator[Deployment]:
    """The pair, up; destroyed at the end."""
    settle(pair)
    yield pair
    pair.must("destroy")


def knock(pair: Deployment, node: str, *words: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Use the key on a node as its user; returns the status and all that was said."""
    argv = [
        *("ssh", "-F", "none", "-i", KEY, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"),
        *("-o", "StrictHostKeyChecking=accept-new", "-o", "UserKnownHostsFile=/dev/null"),
        *(*options, f"{USER}@{WORKER}", *words),
    ]
    script = f"{shlex.join(argv)} 2>&1 </dev/null; echo status=$?"
    text = pair.lab.root(node, "su", "-", USER, "-c", script)
    said, _, status = text.rpartition("status=")
    return int(status), said


@pytest.mark.parametrize("words", [("id",), ("bash", "-c", "id"), ("image-load;id",), ()])
def test_the_key_asks_for_nothing_but_the_receivers_words(served: Deployment, words: tuple[str, ...]) -> None:
    status, said = knock(served, "head", *words)
    assert status != 0
    assert "not allowed" in said or "malformed" in said
    assert "uid=" not in said


def test_the_key_forwards_no_port(served: Deployment) -> None:
    status, said = knock(served, "head", options=("-W", "127.0.0.1:22"))
    assert status != 0
    assert "SSH-2.0" not in said


def test_the_key_is_worth_nothing_elsewhere(served: Deployment) -> None:
    key = served.lab.root("head", "cat", KEY)
    served.lab.root(
        "worker", "install", "-m", "600", "-o", USER, "-g", USER, "/dev/stdin", KEY, stdin=f"{key}\n".encode()
    )
    try:
        status, said = knock(served, "worker", "image-identity", "x")
    finally:
        served.lab.root("worker", "rm", KEY)
    assert status != 0
    assert "Permission denied" in said
    assert knock(served, "head", "image-identity", "x")[0] == 0


def test_the_head_sends_nothing_to_a_worker_with_another_host_key(served: Deployment) -> None:
    """The third hop; what a person reads of the others is in test_mistakes.py."""
    inputs = {"KEY": KEY.rpartition("/")[2], "PEER": "worker", "PEER_ADDRESS": WORKER, "PEER_USER": USER}
    right = served.lab.status()["nodes"]["worker"]["hostKey"]

    def ask(host_key: str) -> str:
        script = (
            compose("fabric.sh", {**inputs, "PEER_HOST_KEY": host_key})
            + "peer image-identity x 2>&1 || true\n"
        )
        return served.lab.root("head", "su", "-", USER, "-c", "bash -s", stdin=script.encode())

    assert "verification failed" in ask(host_key("somebody else"))
    assert re.fullmatch(r"[0-9a-f]{12}", ask(" ".join(right.split()[:2])).strip())


def test_destroy_takes_key_and_door_away_and_leaves_the_operators_own(served: Deployment) -> None:
    authorized = f"/home/{USER}/.ssh/authorized_keys"
    before = served.lab.root("worker", "cat", authorized)
    served.must("destroy")
    after = served.lab.root("worker", "cat", authorized)
    assert [line for line in before.splitlines() if "spark-vllm-test" not in line] == after.splitlines()
    assert after
    left = served.lab.root("worker", "find", f"/home/{USER}/.local", "-type", "f")
    assert left == ""
    assert "spark-vllm" not in served.lab.root("head", "ls", "-A", f"/home/{USER}/.ssh")
