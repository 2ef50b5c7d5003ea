"""What stands before every script of the nodes."""

from __future__ import annotations

import re
import subprocess

import pytest

from components.remote import SCRIPTS, compose

LEAVES_EARLY = re.compile(r"\|\s*(grep -\w*[qm]|head\b(?! -c)|awk [^|]*exit|sed [^|]*;? ?q\b)")

SLOW = """
working() { echo "at work for $SECONDS s"; }
slow() { cat; sleep 5.5; return 3; }
meanwhile working slow || echo "status=$?"
"""


@pytest.mark.parametrize(("pattern", "found"), [("yes", True), ("no", False), ("[", False)])
def test_what_a_slow_writer_says_first_is_found(pattern: str, found: bool) -> None:
    script = compose("lib.sh", {}) + f"{{ echo yes; sleep 0.1; echo more; }} | holds '{pattern}'"
    done = subprocess.run(["bash", "-s"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode == 0) is found, done.stderr


def test_no_script_reads_a_pipe_that_it_leaves_early() -> None:
    lines = [
        f"{path.name}: {line.strip()}"
        for path in sorted(SCRIPTS.glob("*.sh"))
        for line in path.read_text().splitlines()
        if LEAVES_EARLY.search(line)
    ]
    assert not lines


def test_what_takes_long_is_told_while_it_runs_and_keeps_its_input_and_status() -> None:
    script = compose("lib.sh", {}) + SLOW
    # as the receiver runs: what comes in is not the script
    done = subprocess.run(
        ["bash", "-c", script], input="given\n", text=True, capture_output=True, check=False
    )
    assert done.stdout.split() == ["given", "status=3"]
    told = re.fullmatch(r"at work for (\d+) s\nat work for (\d+) s\n", done.stderr)
    assert told, done.stderr
    # the clock of a busy machine may have moved on before the first words
    assert 5 <= int(told[2]) - int(told[1]) <= 7
