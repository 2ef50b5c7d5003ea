"""The argument check, in the stub's vLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.images.programs import REMOTE, SITE, Machine

if TYPE_CHECKING:
    from pathlib import Path

CHECK = str(REMOTE / "check_args.py")
ONE_RAY = SITE.parent / "bin"
TWO = ("--tensor-parallel-size=2", "--distributed-executor-backend=ray")


def check(
    machine: Machine,
    *args: str,
    engine: bool = True,
    site: Path = SITE,
    limit: str = "30",
    commands: Path = ONE_RAY,
) -> tuple[int, str, str]:
    request = json.dumps({"args": [machine.model(), *args], "engine": engine})
    environment = {"PYTHONPATH": str(site), "CHECK_LIMIT_SECONDS": limit, "PATH": f"{commands}:/usr/bin:/bin"}
    done = machine.run(CHECK, stdin=request, **environment)
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
        pytest.param(
            ["--reasoning-parser=qwen9"],
            "invalid reasoning parser: qwen9 (chose from { deepseek_r1,",
            marks=pytest.mark.report("V1"),
        ),
        (["--enable-auto-tool-choice"], "--enable-auto-tool-choice requires --tool-call-parser"),
        (["--enable-auto-tool-choice", "--tool-call-parser=qwen9"], "invalid tool call parser: qwen9"),
        pytest.param(
            ["--chat-template=/missing.jinja"],
            "No such file or directory: '/missing.jinja'",
            marks=pytest.mark.report("D16"),
        ),
    ],
)
def test_refuses_without_the_model(head: Machine, args: list[str], words: str) -> None:
    status, _, said = check(head, *args, engine=False)

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
    assert check(head, *args, engine=False)[0] == 0

    status, _, said = check(head, *args)

    assert status == 2
    assert words in said


@pytest.mark.report("D4")
def test_an_image_without_ray(head: Machine) -> None:
    (head.folder / "vllm").symlink_to(SITE / "vllm")

    assert check(head, engine=False, site=head.folder)[1] == "vllm=0.17.1rc1\nray=none\ncheck=ok\n"
    assert "Failed to import Ray" in check(head, *TWO, site=head.folder)[2]


@pytest.mark.report("D5")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo ray, version 2.52.0", "is Ray 2.52.0, and its vLLM imports Ray 2.53.0"),
        ("", "no `ray` command"),
    ],
)
def test_two_rays_in_one_image_are_refused(head: Machine, command: str, words: str) -> None:
    if command:
        (head.folder / "ray").write_text(f"#!/bin/sh\n{command}\n")
        (head.folder / "ray").chmod(0o755)

    status, _, said = check(head, *TWO, engine=False, commands=head.folder)

    assert status == 2
    assert words in said
    assert check(head, engine=False, commands=head.folder)[0] == 0, "mp needs no Ray"


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
