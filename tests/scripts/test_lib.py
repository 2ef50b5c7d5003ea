"""What stands before every script of the nodes."""

from __future__ import annotations

import re
import subprocess

import pytest

from components.remote import SCRIPTS, compose

LEAVES_EARLY = re.compile(r"\|\s*(grep -\w*[qm]|head\b(?! -c)|awk [^|]*exit|sed [^|]*;? ?q\b)")


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
