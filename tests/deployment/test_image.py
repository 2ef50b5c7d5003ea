"""The image on real engines: what is sent, what is refused, and a registry that asks who it is."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.deployment import Deployment
from lab.images import stub
from tests.deployment.stack import (
    ALL_OF_RAY,
    CREDENTIALS,
    ask,
    by,
    containers,
    edit,
    position,
    restarts,
    settle,
    unchanged,
)

pytestmark = pytest.mark.lab

PROXY = Path(__file__).parent / "registry_proxy.py"
USER, PASSWORD, PORT, OPEN_PORT = "reader", "correct horse battery", 5002, 5003


@pytest.fixture(scope="module")
def served(pair: Deployment) -> Iterator[Deployment]:
    """The pair, up; its image is the first one again at the end."""
    settle(pair)
    right = pair.config_file.read_text()
    yield pair
    pair.config_file.write_text(right)
    settle(pair)


def sent_bytes(pair: Deployment) -> int:
    """What the head has sent on its rails, in bytes."""
    names = [rail["interface"] for rail in pair.lab.status()["nodes"]["head"]["rails"]]
    paths = [f"/sys/class/net/{name}/statistics/tx_bytes" for name in names]
    return sum(map(int, pair.lab.root("head", "cat", *paths).split()))


@pytest.mark.row("image", "fetched on all nodes first; then all of Ray, vllm")
def test_of_another_image_the_new_layers_alone_are_on_every_node_before_anything_stops(
    served: Deployment,
) -> None:
    lab = served.lab
    new = lab.push(stub(lab.outer, "v2"))
    before = sent_bytes(served)
    run = restarts(served, by(lambda config: config["image"].update({"ref": new})), ALL_OF_RAY)
    layers = re.search(r"(\d+) of (\d+) layers are there already", run.output)
    assert layers
    assert int(layers[1]) == int(layers[2]) - 1
    assert sent_bytes(served) - before < 3_000_000
    stop = position(run, "vllm", "delete-replaced")
    for step in ("image-head", "image-worker", "check-engine"):
        assert position(run, step, "create-replacement") < stop
    steps = {event.name for event in run.events if event.op == "create-replacement"}
    assert not any(name.startswith(("link-", "model-")) for name in steps)
    tag = f"spark-vllm/stub:{pin(new)}"
    nodes = ("head", "worker")
    assert len({lab.docker(node, "image", "inspect", "--format={{.Id}}", tag) for node in nodes}) == 1
    for node in nodes:
        assert lab.docker(node, "exec", f"ray-{node}", "cat", "/etc/stub-variant").strip() == "v2"
    assert ask(served).status_code == 200
    unchanged(served)


def test_an_image_that_a_worker_has_by_another_name_is_not_sent(served: Deployment) -> None:
    image = stub(served.lab.outer, "v4")
    served.lab.load("worker", image)
    new = served.lab.push(image)
    edit(served, lambda config: config["image"].update({"ref": new}))
    before = sent_bytes(served)
    run = served.must("up")
    assert f"worker: spark-vllm/stub:{pin(new)} is there" in run.output
    assert sent_bytes(served) - before < 1_000_000
    assert "v4" in served.lab.docker("worker", "exec", "ray-worker", "cat", "/etc/stub-variant")


@pytest.mark.parametrize(
    "flaw",
    [
        pytest.param("no Ray", marks=pytest.mark.report("D4")),
        pytest.param("other architecture", marks=pytest.mark.report("D9")),
    ],
)
def test_an_image_that_cannot_serve_is_refused_before_anything_stops(served: Deployment, flaw: str) -> None:
    before = containers(served)
    right = served.config_file.read_text()
    image = stub(served.lab.outer, ray=False) if flaw == "no Ray" else for_another_machine(served)
    edit(served, lambda config: config["image"].update({"ref": served.lab.push(image)}))
    run = served.pulumi("up")
    served.config_file.write_text(right)
    assert run.status != 0
    assert {"no Ray": "Ray", "other architecture": "choose an image for"}[flaw] in run.output
    assert "Traceback" not in run.output
    assert containers(served) == before
    served.must("up")
    assert containers(served) == before


def test_with_a_registry_for_all_each_node_pulls_for_itself(served: Deployment) -> None:
    lab = served.lab
    pushed = lab.push(stub(lab.outer, "v5"))
    registry, _, name = pushed.partition("/")
    # Only the head reaches the lab's registry: here each node does, by a port of its own.
    passed_on = {"head": registry, "worker": f"{lab.nic('head', 0).address.partition('/')[0]}:{OPEN_PORT}"}
    for node, address in passed_on.items():
        lab.root(
            node, "systemd-run", "--unit=registry-for-all", f"--socket-property=ListenStream={OPEN_PORT}",
            "/lib/systemd/systemd-socket-proxyd", address,
        )  # fmt: skip
    new = {"ref": f"127.0.0.1:{OPEN_PORT}/{name}", "distribution": "registry"}
    run = restarts(served, by(lambda config: config["image"].update(new)), ALL_OF_RAY)
    for node in ("head", "worker"):
        assert f"{node}: pulling 127.0.0.1:{OPEN_PORT}/{name}" in run.output
        assert lab.docker(node, "exec", f"ray-{node}", "cat", "/etc/stub-variant").strip() == "v5"
    assert position(run, "image-worker", "create-replacement") < position(run, "vllm", "delete-replaced")
    assert ask(served).status_code == 200
    unchanged(served)


@CREDENTIALS
def test_a_private_registry_lets_in_who_has_the_password(served: Deployment) -> None:
    public = served.lab.push(stub(served.lab.outer, "v3"))
    host = public.partition("/")[0]
    served.lab.root("head", "tee", "/run/registry_proxy.py", stdin=PROXY.read_bytes())
    served.lab.root(
        "head", "systemd-run", "--unit=registry-proxy", "python3", "/run/registry_proxy.py", f"{PORT}",
        f"http://{host}", USER, PASSWORD,
    )  # fmt: skip
    before = containers(served)
    private = f"127.0.0.1:{PORT}/{public.partition('/')[2]}"

    edit(served, lambda config: config["image"].update({"ref": private}))
    # the pull alone: what would follow is told by other tests
    pull = ("up", "--target=**::image-head")
    anonymous = served.pulumi(*pull)
    assert anonymous.status != 0
    assert "a private one needs image.registryUser" in anonymous.output

    edit(served, lambda config: config["image"].update({"registryUser": USER}))
    half = served.pulumi("preview")
    assert half.status != 0
    assert "go together" in half.output

    served.set_secret("registryPassword", "wrong")
    refused = served.pulumi(*pull)
    assert refused.status != 0
    assert f"127.0.0.1:{PORT} does not let {USER} in" in refused.output

    served.set_secret("registryPassword", PASSWORD)
    run = served.must(*pull, "--diff")
    assert PASSWORD not in run.output
    served.set_secret("registryPassword", "another one")
    assert {event.op for event in served.must("preview").events if event.name == "image-head"} == {"update"}
    assert containers(served) == before
    assert served.lab.docker("head", "image", "inspect", "--format={{.Os}}", private) == "linux"
    left = served.lab.root("head", "sh", "-c", "grep -rl 'cmVhZGVyOmNv' /home/aurora /dev/shm /tmp || true")
    assert left == ""


def for_another_machine(served: Deployment) -> str:
    """An image that says it is for the architecture that the lab's nodes do not have."""
    outer = served.lab.outer
    own = outer.docker("version", "--format={{.Server.Arch}}").strip()
    other = {"amd64": "arm64", "arm64": "amd64"}[own]
    tag = f"spark-lab/empty:{other}"
    outer.docker("import", "-", tag, stdin=bytes(10240))
    changed = io.BytesIO()
    saved = subprocess.run(outer.command("save", tag), stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(saved)) as old, tarfile.open(fileobj=changed, mode="w") as new:
        for member in old:
            content = old.extractfile(member)
            data = content.read() if content else b""
            data = data.replace(f'"architecture":"{own}"'.encode(), f'"architecture":"{other}"'.encode())
            new.addfile(member, io.BytesIO(data))
    outer.docker("load", stdin=changed.getvalue())
    return tag


def pin(reference: str) -> str:
    """The 12 digits of the pin that the local tag is made of."""
    return reference.partition("@sha256:")[2][:12]
