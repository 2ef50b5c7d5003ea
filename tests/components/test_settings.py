"""Settings: what is accepted, and what a person reads when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from components.settings import Secrets, Settings, digest, parse, require_pins
from tests import samples

Path = tuple[str | int, ...]
report = pytest.mark.report


def changed(path: Path, value: Any) -> samples.Config:  # noqa: ANN401 - JSON
    configuration = samples.config()
    target: Any = configuration
    for part in path[:-1]:
        target = target.setdefault(part, {}) if isinstance(target, dict) else target[part]
    target[path[-1]] = value
    return configuration


def refusal(configuration: samples.Config, secret: tuple[str, ...] = ()) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what the test reads
        parse(samples.raw(configuration), secret)
    return str(caught.value)


def test_a_pair_is_accepted_with_its_defaults() -> None:
    pair = samples.settings()
    assert pair.tensor_parallel_size == 2
    assert pair.network.mtu == 9000
    assert pair.model_path == "/models/tiny"
    assert pair.image.local_tag == "spark-vllm/vllm:abababababab"


RAIL: Path = ("nodes", 1, "rails", 0, "address")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("vlm",), {}, "spark-vllm:vlm is not a key: did you mean vllm?"),
        (("vllm", "gpuMemoryUtilisation"), 0.8, "did you mean gpuMemoryUtilization?"),
        (("vllm", "port"), "8000", 'spark-vllm:vllm.port: input should be a valid integer (found "8000")'),
        (("vllm", "port"), 0, "spark-vllm:vllm.port: input should be greater than or equal to 1"),
        (("vllm", "port"), True, "spark-vllm:vllm.port: input should be a valid integer (found true)"),
        (("vllm", "servedModelName"), 5, "spark-vllm:vllm.servedModelName must be a string: put 5 in quotes"),
        (("vllm", "servedModelName"), "", "spark-vllm:vllm.servedModelName"),
        pytest.param(
            ("vllm", "gpuMemoryUtilization"),
            1.7,
            "spark-vllm:vllm.gpuMemoryUtilization: input should be less",
            marks=report("M6"),
        ),
        (("vllm", "executor"), "rya", "spark-vllm:vllm.executor: input should be 'ray' or 'mp'"),
        pytest.param(
            ("vllm", "args"), {"tp": 2}, "it follows from the key vllm.tensorParallelSize", marks=report("R1")
        ),
        pytest.param(
            ("vllm", "args"), {"api_key": "x"}, "it follows from the key apiKey", marks=report("V4")
        ),
        (("vllm", "args"), {"host": "x"}, "it follows from the key vllm.host"),
        (("vllm", "args"), {"x": None}, "--x has no value"),
        (("vllm", "args"), {"x": ["-a"]}, "would be read as a flag"),
        (("vllm", "args"), {"max_len": 1, "max-len": 2}, "--max-len is given twice"),
        (("vllm", "args"), {"a b": 1}, "spark-vllm:vllm.args"),
        (("vllm", "env"), {"A": 1}, "spark-vllm:vllm.env.A must be a string: put 1 in quotes"),
        (("vllm", "env"), {"A-B": "1"}, "spark-vllm:vllm.env"),
        pytest.param(
            ("vllm", "env"),
            {"VLLM_HOST_IP": "x"},
            "it follows from the key nodes[].rails[0].address",
            marks=report("N4", "N3"),
        ),
        pytest.param(
            ("ray", "env"), {"GLOO_SOCKET_IFNAME": "^lo"}, "nodes[].rails[0].interface", marks=report("N8")
        ),
        (("vllm", "pipelineParallelSize"), 3, "but 2 nodes have 2 GPUs"),
        pytest.param(("vllm", "port"), 6379, "ray.port 6379 is already vllm.port", marks=report("R10")),
        pytest.param(
            ("vllm", "port"), 20500, "vllm.port 20500 is already Ray's worker ports", marks=report("R10")
        ),
        (("image",), "vllm:v1", "spark-vllm:image: input should be an object"),
        (("image", "ref"), "vllm:v1@sha256:12", "spark-vllm:image.ref is malformed"),
        (("image", "ref"), "-rm", "spark-vllm:image.ref is malformed"),
        (("image", "distribution"), "pigeon", "spark-vllm:image.distribution"),
        (("model",), {"directory": "models/x"}, "spark-vllm:model.directory is malformed"),
        (("model",), {"directory": "/models"}, "spark-vllm:model.directory: must be a directory below"),
        (
            ("model",),
            {"directory": "/models/../etc/x"},
            "spark-vllm:model.directory: must be a directory such",
        ),
        (("model",), {"repo": "x", "root": "/r"}, "spark-vllm:model.repo is malformed"),
        (("model",), {"repo": "a/b", "root": "/"}, "spark-vllm:model.root: must be a directory such"),
        (
            ("model",),
            {"repo": "a/b", "root": "/r", "revision": "a/../b"},
            "spark-vllm:model.revision: must be",
        ),
        (
            ("model",),
            {"repo": "a/b", "root": "/r", "endpoint": "hub"},
            "spark-vllm:model.endpoint is malformed",
        ),
        (("network", "mtu"), 900, "spark-vllm:network.mtu"),
        (("nodes",), [], "spark-vllm:nodes"),
        pytest.param(
            RAIL, "192.168.200.12/24", "rail address 192.168.200.12 is given twice", marks=report("N4")
        ),
        pytest.param(RAIL, "127.0.0.1/24", "cannot be a fabric address", marks=report("N9")),
        pytest.param(RAIL, "169.254.1.1/24", "cannot be a fabric address", marks=report("N9")),
        (RAIL, "192.168.200.255/24", "is the network or broadcast address"),
        pytest.param(RAIL, "192.168.77.13/24", "must share a subnet", marks=report("N5")),
        (RAIL, "spark-2", "spark-vllm:nodes[1].rails[0].address"),
        pytest.param(RAIL, "", "spark-vllm:nodes[1].rails[0].address", marks=report("N6")),
        (("nodes", 1, "rails", 1, "address"), "192.168.200.77/24", "give each twin a subnet of its own"),
        pytest.param(("nodes", 1, "rails"), [], "several nodes need rails", marks=report("N9")),
        (("nodes", 1, "rails", 1, "interface"), "enp1s0f0np0", "is given twice"),
        pytest.param(
            ("nodes", 1, "rails", 0, "interface"), "^lo,docker0", "interface is malformed", marks=report("N8")
        ),
        pytest.param(
            ("nodes", 1, "rails", 0, "interface"), "a,b", "interface is malformed", marks=report("N8", "N15")
        ),
        (("nodes", 1, "name"), "head", "node name head is given twice"),
        (("nodes", 1, "name"), "vllm", "cannot be named vllm"),
        (("nodes", 1, "name"), "Worker 1", "spark-vllm:nodes[1].name is malformed"),
        (("nodes", 1, "ssh", "jump"), "other", "ssh.jump must be the head"),
        (("nodes", 0, "ssh", "jump"), "worker", "the head, head, is reached directly"),
        (("nodes", 0, "ssh", "host"), "-oProxyCommand=x", "spark-vllm:nodes[0].ssh.host is malformed"),
        (("nodes", 0, "ssh", "hostKey"), "ssh-rsa AAAA", "spark-vllm:nodes[0].ssh.hostKey"),
        (("nodes", 1, "ssh", "port"), "ssh", "spark-vllm:nodes[1].ssh.port"),
        pytest.param(
            ("vllm", "args"),
            {"distributed_executor_backend": "mp"},
            "it follows from the key vllm.executor",
            marks=report("R1"),
        ),
        pytest.param(
            ("nodes", 1, "gidIndex"),
            "",
            'spark-vllm:nodes[1].gidIndex: input should be a valid integer (found "")',
            marks=report("F3"),
        ),
        pytest.param(
            ("vllm", "env"),
            {"NCCL_IB_GID_INDEX": ""},
            "it follows from the key nodes[].gidIndex",
            marks=report("F3"),
        ),
        pytest.param(
            ("container", "networkMode"), "bridge", "container.networkMode is not a key", marks=report("N14")
        ),
        (("container", "gpus"), 1, "spark-vllm:container.gpus"),
        (("recovery", "attempts"), 0, "spark-vllm:recovery.attempts"),
    ],
)
def test_a_mistake_names_its_key(path: Path, value: object, words: str) -> None:
    assert words in refusal(changed(path, value))


@pytest.mark.parametrize("key", ["image", "model", "vllm", "nodes"])
def test_what_is_missing_is_named(key: str) -> None:
    configuration = samples.config()
    del configuration[key]
    assert f"spark-vllm:{key} is missing" in refusal(configuration)


def test_every_mistake_is_told_at_once() -> None:
    text = refusal(changed(("vllm",), {"servedModelName": 5, "prt": 1}))
    assert "servedModelName" in text
    assert "prt is not a key: did you mean port?" in text


def test_a_secret_in_clear_and_a_secret_elsewhere_are_refused() -> None:
    clear = refusal({**samples.config(), "apiKey": "canary"})
    assert "spark-vllm:apiKey stands in clear: set it with `pulumi config set --secret apiKey`" in clear
    assert "canary" not in clear
    hidden = refusal(samples.config(), secret=("vllm",))
    assert "spark-vllm:vllm holds a secret value" in hidden


def test_one_node_needs_no_rails() -> None:
    configuration = samples.config(1)
    del configuration["nodes"][0]["rails"]
    assert parse(samples.raw(configuration)).tensor_parallel_size == 1


@pytest.mark.report("H4")
def test_a_snapshot_of_a_hub_cache_mounts_its_blobs_too() -> None:
    settings = samples.settings(model={"directory": "/hf/models--a--b/snapshots/123"})
    assert settings.model.mount == "/hf/models--a--b"
    assert settings.model_path == "/models/snapshots/123"


def test_revisions_of_one_root_share_their_mount() -> None:
    one = samples.settings(model={"repo": "a/b", "root": "/m", "revision": "1" * 40})
    two = samples.settings(model={"repo": "a/b", "root": "/m", "revision": "2" * 40})
    assert one.model.mount == two.model.mount == "/m"
    assert one.model_path != two.model_path


@pytest.mark.usefixtures("_no_agent")
@pytest.mark.report("S2")
def test_what_up_needs_beyond_a_preview() -> None:
    configuration = samples.config(image={"ref": "a/b:latest"}, model={"repo": "a/b", "root": "/m"})
    del configuration["nodes"][1]["ssh"]["hostKey"]
    missing = require_pins(parse(samples.raw(configuration)), Secrets(None, None, None, None))
    for words in (
        "host key is pinned for worker",
        "has no digest",
        "is a branch",
        "without a key",
        "No SSH agent",
    ):
        assert any(words in sentence for sentence in missing), words


@pytest.fixture
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def test_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_settings_are_frozen() -> None:
    settings = samples.settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.vllm.port = 1  # type: ignore[misc]
    assert isinstance(settings, Settings)
