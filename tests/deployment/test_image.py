"""The image on real engines: what is sent, what is refused, and a registry that asks who it is."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.deployment import Deployment
from lab.images import stub
from tests.deployment.stack import containers, edit, unchanged

pytestmark = pytest.mark.lab

PROXY = Path(__file__).parent / "registry_proxy.py"
USER, PASSWORD, PORT = "reader", "correct horse battery", 5002


@pytest.fixture(scope="module")
def deployed(pair: Deployment) -> Iterator[Deployment]:
    """The pair, up; its image is the first one again at the end."""
    pair.must("up", "--refresh")
    right = pair.config_file.read_text()
    yield pair
    pair.config_file.write_text(right)
    pair.must("up", "--refresh")


def sent_bytes(pair: Deployment) -> int:
    """What the head has sent on its rails, in bytes."""
    names = [rail["interface"] for rail in pair.lab.status()["nodes"]["head"]["rails"]]
    paths = [f"/sys/class/net/{name}/statistics/tx_bytes" for name in names]
    return sum(map(int, pair.lab.root("head", "cat", *paths).split()))


def test_of_a_new_image_only_the_new_layers_go_to_the_worker(deployed: Deployment) -> None:
    new = deployed.lab.push(stub(deployed.lab.outer, "v2"))
    edit(deployed, lambda config: config["image"].update({"ref": new}))
    before = sent_bytes(deployed)
    run = deployed.must("up")
    assert "7 of 8 layers are there already" in run.output
    assert sent_bytes(deployed) - before < 3_000_000
    identities = {
        deployed.lab.docker(node, "image", "inspect", "--format={{.Id}}", f"spark-vllm/stub:{pin(new)}")
        for node in ("head", "worker")
    }
    assert len(identities) == 1
    assert "v2" in deployed.lab.docker("worker", "exec", "ray-worker", "cat", "/etc/stub-variant")
    unchanged(deployed)


def test_an_image_that_a_worker_has_by_another_name_is_not_sent(deployed: Deployment) -> None:
    image = stub(deployed.lab.outer, "v4")
    deployed.lab.load("worker", image)
    new = deployed.lab.push(image)
    edit(deployed, lambda config: config["image"].update({"ref": new}))
    before = sent_bytes(deployed)
    run = deployed.must("up")
    assert f"worker: spark-vllm/stub:{pin(new)} is there" in run.output
    assert sent_bytes(deployed) - before < 1_000_000
    assert "v4" in deployed.lab.docker("worker", "exec", "ray-worker", "cat", "/etc/stub-variant")


@pytest.mark.parametrize("flaw", ["no Ray", "other architecture"])
def test_an_image_that_cannot_serve_is_refused_before_anything_stops(deployed: Deployment, flaw: str) -> None:
    before = containers(deployed)
    right = deployed.config_file.read_text()
    image = stub(deployed.lab.outer, ray=False) if flaw == "no Ray" else for_another_machine(deployed)
    edit(deployed, lambda config: config["image"].update({"ref": deployed.lab.push(image)}))
    run = deployed.pulumi("up")
    deployed.config_file.write_text(right)
    assert run.status != 0
    assert {"no Ray": "Ray", "other architecture": "choose an image for"}[flaw] in run.output
    assert "Traceback" not in run.output
    assert containers(deployed) == before
    deployed.must("up")
    assert containers(deployed) == before


def test_a_private_registry_lets_in_who_has_the_password(deployed: Deployment) -> None:
    public = deployed.lab.push(stub(deployed.lab.outer, "v3"))
    host = public.partition("/")[0]
    deployed.lab.root("head", "tee", "/run/registry_proxy.py", stdin=PROXY.read_bytes())
    deployed.lab.root(
        "head", "systemd-run", "--unit=registry-proxy", "python3", "/run/registry_proxy.py", f"{PORT}",
        f"http://{host}", USER, PASSWORD,
    )  # fmt: skip
    before = containers(deployed)
    private = f"127.0.0.1:{PORT}/{public.partition('/')[2]}"

    edit(deployed, lambda config: config["image"].update({"ref": private}))
    # the pull alone: what would follow is told by other tests
    pull = ("up", "--target=**::image-head")
    anonymous = deployed.pulumi(*pull)
    assert anonymous.status != 0
    assert "a private one needs image.registryUser" in anonymous.output

    edit(deployed, lambda config: config["image"].update({"registryUser": USER}))
    half = deployed.pulumi("preview")
    assert half.status != 0
    assert "go together" in half.output

    secret(deployed, "wrong")
    refused = deployed.pulumi(*pull)
    assert refused.status != 0
    assert f"127.0.0.1:{PORT} does not let {USER} in" in refused.output

    secret(deployed, PASSWORD)
    run = deployed.must(*pull, "--diff")
    assert PASSWORD not in run.output
    assert containers(deployed) == before
    assert deployed.lab.docker("head", "image", "inspect", "--format={{.Os}}", private) == "linux"
    left = deployed.lab.root("head", "sh", "-c", "grep -rl 'cmVhZGVyOmNv' /home/aurora /dev/shm /tmp || true")
    assert left == ""


def for_another_machine(deployed: Deployment) -> str:
    """An image that says it is for the architecture that the lab's nodes do not have."""
    outer = deployed.lab.outer
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


def secret(deployed: Deployment, password: str) -> None:
    """Set the registry's password as a person does."""
    deployed.must(
        "config", "set", "--secret", "registryPassword", password, f"--stack={deployed.stack}",
        f"--config-file={deployed.config_file}",
    )  # fmt: skip
