"""The gate that asks the image's own vLLM, beside what runs: memory, versions, what is asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.remote import on_a_node

GIB_IN_KIB = 1024**2
SKIPPED, WHOLE = "versions", "engine"


def gate(  # noqa: PLR0913 - what an image and a node may look like
    scratch: Path,
    *,
    free_gib: int = 20,
    ray: str = "2.53.0",
    token: bool = True,
    required: bool = False,
    executor: str = "ray",
    refusal: str = "",
) -> tuple[int, str, str]:
    """Run the gate; the image answers as asked, and keeps what it was asked."""
    (scratch / "meminfo").write_text(f"MemAvailable: {free_gib * GIB_IN_KIB} kB\n")
    (scratch / "config.json").write_text("{}")
    refuse = f"echo '{refusal}' >&2; exit 2;" if refusal else ""
    answer = f"{refuse} cat >'{scratch}/asked'; printf 'vllm=0.17\\nray={ray}\\ncheck=ok\\n'"
    inputs = {
        "NODE": "head", "NAME": "check", "TAG": "spark-vllm/x:1", "CHECK": "pass", "REQUEST": '["/models/x"]',
        "EXECUTOR": executor, "GPUS": "all", "MODELS": str(scratch), "PRESENT": str(scratch / "config.json"),
        "DIRECTORY": str(scratch), "CACHE_VOLUME": "cache", "ENGINE": "when-present", "LABELS": "",
        "MIN_FREE_MIB": "6144", "TOKEN": json.dumps(token), "REQUIRED": json.dumps(required),
        "MEMINFO": str(scratch / "meminfo"), "XDG_CACHE_HOME": str(scratch / "cache"),
    }  # fmt: skip
    docker = f'case "$1 $2" in "run --rm") {answer} ;; "image inspect") echo sha256:1 ;; esac'
    return on_a_node("gate.sh", inputs, scratch, libraries=["machine.sh"], docker=docker)


def asked(scratch: Path) -> str:
    """How far the last check went."""
    depth: str = json.loads((scratch / "asked").read_text())["depth"]
    return depth


def test_what_has_passed_is_not_asked_again(tmp_path: Path) -> None:
    assert gate(tmp_path)[:2] == (0, "vllm=0.17\nray=2.53.0\ncheck=ok\n")
    assert asked(tmp_path) == WHOLE
    (tmp_path / "asked").unlink()
    assert gate(tmp_path)[:2] == (0, "vllm=0.17\nray=2.53.0\ncheck=ok\n")
    assert not (tmp_path / "asked").exists()


def test_a_refusal_is_told_in_vllms_own_words(tmp_path: Path) -> None:
    status, _, words = gate(tmp_path, refusal="unrecognized arguments: --max-modl-len")
    assert status == 1
    assert "nothing was stopped: unrecognized arguments: --max-modl-len" in words


def test_with_little_memory_free_versions_are_still_read(tmp_path: Path) -> None:
    status, out, words = gate(tmp_path, free_gib=5)
    assert (status, "ray=2.53.0" in out) == (0, True)
    assert "warning: head has 5120 MiB of memory free, less than 6144: the arguments are not checked" in words
    assert asked(tmp_path) == SKIPPED
    gate(tmp_path)
    assert asked(tmp_path) == WHOLE, "what was not checked has not passed"


def test_with_little_memory_free_it_refuses_where_the_settings_say_so(tmp_path: Path) -> None:
    status, _, words = gate(tmp_path, free_gib=5, required=True)
    assert status == 1
    assert "5120 MiB of memory free" in words
    assert "vllm.requireArgumentCheck" in words
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("free_gib", [5, 20])
def test_an_image_without_ray_is_refused(tmp_path: Path, free_gib: int) -> None:
    status, _, words = gate(tmp_path, free_gib=free_gib, ray="none")
    assert status == 1
    assert "holds no Ray, and vllm.executor is ray" in words
    assert gate(tmp_path, free_gib=free_gib, ray="none", executor="mp")[0] == 0


@pytest.mark.parametrize(
    ("ray", "token", "passes"),
    [
        ("2.51.1", True, False),
        ("2.51.1", False, True),
        ("2.52.0", True, True),
        ("2.100.0", True, True),
        ("unknown", True, True),
    ],
)
def test_a_token_is_not_given_to_a_ray_that_knows_none(
    tmp_path: Path, ray: str, *, token: bool, passes: bool
) -> None:
    status, _, words = gate(tmp_path, ray=ray, token=token)
    assert (status == 0) is passes
    assert ("pulumi config rm rayToken" in words) is not passes
    assert (gate(tmp_path, ray=ray, token=token)[0] == 0) is passes


def test_a_token_is_refused_also_where_the_same_has_passed_without_one(tmp_path: Path) -> None:
    assert gate(tmp_path, ray="2.51.1", token=False)[0] == 0
    (tmp_path / "asked").unlink()
    status, _, words = gate(tmp_path, ray="2.51.1", token=True)
    assert status == 1
    assert "Ray 2.51.1, which knows no tokens" in words
    assert not (tmp_path / "asked").exists()
