"""The argument check, in the stub's vLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.images.programs import REMOTE, SITE, Machine

if TYPE_CHECKING:
    from pathlib import Path

CHECK = str(REMOTE / "check_args.py")
TWO = ("--tensor-parallel-size=2", "--distributed-executor-backend=ray")


def check(
    machine: Machine, *args: str, depth: str = "engine", site: Path = SITE, limit: str = "30"
) -> tuple[int, str, str]:
    request = json.dumps({"args": [machine.model(), *args], "depth": depth})
    done = machine.run(CHECK, stdin=request, PYTHONPATH=str(site), CHECK_LIMIT_SECONDS=limit)
    return done.returncode, done.stdout, done.stderr


def test_accepts_the_arguments_of_a_pair(head: Machine) -> None:
    parsers = ("--tool-call-parser=qwen3_coder", "--enable-auto-tool-choice", "--reasoning-parser=qwen3")

    status, output, words = check(head, *TWO, *parsers, "--max_model_len=2k")

    assert (status, output, words) == (0, "vllm=0.17.1rc1\nray=2.53.0\ncheck=ok\n", "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--gpu-memory-utilisation=0.8"], "unrecognized arguments: --gpu-memory-utilisation=0.8"),
        (["--compilation-config={x"], "Value {x cannot be converted"),
        (["--reasoning-parser=qwen9"], "invalid reasoning parser: qwen9 (chose from { deepseek_r1,"),
        (["--enable-auto-tool-choice"], "--enable-auto-tool-choice requires --tool-call-parser"),
        (["--enable-auto-tool-choice", "--tool-call-parser=qwen9"], "invalid tool call parser: qwen9"),
        (["--chat-template=/missing.jinja"], "No such file or directory: '/missing.jinja'"),
    ],
)
def test_refuses_without_the_model(head: Machine, args: list[str], words: str) -> None:
    status, _, said = check(head, *args, depth="arguments")

    assert status == 2
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--gpu-memory-utilization=1.7"], "less than or equal to 1"),
        (["--max-model-len=99999"], "User-specified max_model_len (99999) is greater"),
        (["--distributed-executor-backend=slurm"], "Unrecognized distributed executor backend slurm"),
        (["--tensor-parallel-size=2"], "World size (2) is larger than the number of available GPUs (1)"),
        (["--tensor-parallel-size=3", "--distributed-executor-backend=ray"], "must be divisible"),
        (["--quantization=nope"], "Unknown quantization method: nope"),
    ],
)
def test_refuses_what_the_engine_does_not_take(head: Machine, args: list[str], words: str) -> None:
    assert check(head, *args, depth="arguments")[0] == 0

    status, _, said = check(head, *args)

    assert status == 2
    assert words in said


def test_an_image_without_ray(head: Machine) -> None:
    (head.folder / "vllm").symlink_to(SITE / "vllm")

    assert check(head, depth="arguments", site=head.folder)[1] == "vllm=0.17.1rc1\nray=none\ncheck=ok\n"
    assert "Failed to import Ray" in check(head, *TWO, site=head.folder)[2]


def test_versions_are_told_without_importing(head: Machine) -> None:
    package = head.folder / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    described = head.folder / "vllm-0.99.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.99\n")

    status, output, words = check(head, depth="versions", site=head.folder)

    assert (status, output, words) == (0, "vllm=0.99\nray=none\ncheck=skipped\n", "")
    assert check(head, depth="versions")[1] == "vllm=unknown\nray=unknown\ncheck=skipped\n"


def test_a_vllm_of_another_build_is_not_a_refusal(head: Machine) -> None:
    package = head.folder / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text('__version__ = "99"\n')

    status, output, words = check(head, site=head.folder)

    assert status == 3
    assert output == "vllm=99\nray=none\n"
    assert "FlexibleArgumentParser is in none of vllm.utils.argparse_utils, vllm.utils" in words


def test_ends_in_time(head: Machine) -> None:
    package = head.folder / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("import time; time.sleep(30)\n")

    status, _, words = check(head, site=head.folder, limit="0.5")

    assert status == 3
    assert "did not end within" in words


@pytest.mark.parametrize(
    ("flag", "meant"), [("--max-num-seq=5", "--max-num-seqs"), ("--max-nmu-seqs=5", "--max-num-seqs")]
)
def test_a_name_must_be_whole_and_what_was_meant_is_named(head: Machine, flag: str, meant: str) -> None:
    status, _, words = check(head, *TWO, flag)

    assert status == 2
    assert f"unrecognized arguments: {flag}" in words
    assert f"did you mean {meant}?" in words
