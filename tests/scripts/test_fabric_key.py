"""The key between nodes, made once, and made anew where a killed run left half of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.remote import compose


def apply(home: Path) -> str:
    done = subprocess.run(
        ["bash", "-s", "--", "apply"],
        input=compose("fabric-key.sh", {"NODE": "head", "KEY": "spark-vllm-test"}),
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    (key,) = [line.partition("=")[2] for line in done.stdout.splitlines() if line.startswith("public_key=")]
    return key


def test_the_key_stays_the_same(tmp_path: Path) -> None:
    key = apply(tmp_path)
    assert key.startswith("ssh-ed25519 AAAA")
    assert apply(tmp_path) == key


@pytest.mark.parametrize(("file", "text"), [("spark-vllm-test", "half of"), ("spark-vllm-test", "")])
def test_half_a_key_is_made_anew(tmp_path: Path, file: str, text: str) -> None:
    key = apply(tmp_path)
    (tmp_path / ".ssh" / file).write_text(text)
    again = apply(tmp_path)
    assert again.startswith("ssh-ed25519 AAAA")
    assert again != key


def test_a_public_half_that_is_lost_is_told_by_the_private_one(tmp_path: Path) -> None:
    key = apply(tmp_path)
    (tmp_path / ".ssh" / "spark-vllm-test.pub").unlink()
    assert apply(tmp_path) == key
