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


# Over SSH what runs on holds the session open: the main process of a container needs nothing of it.
RUNS_ON = re.compile(r"\b(nohup|setsid|disown)\b")
SETS_THE_KERNEL = re.compile(r"\bsysctl\b|>\s*/proc/sys/(?!vm/drop_caches)|min_free_kbytes|overcommit")


@pytest.mark.report("M4", "S5")
@pytest.mark.parametrize("pattern", [RUNS_ON, SETS_THE_KERNEL])
def test_no_script_leaves_something_running_or_turns_the_kernels_knobs(pattern: re.Pattern[str]) -> None:
    lines = [
        f"{path.name}: {line.strip()}"
        for path in sorted(SCRIPTS.glob("*.sh"))
        for line in path.read_text().splitlines()
        if pattern.search(line)
    ]
    assert not lines
