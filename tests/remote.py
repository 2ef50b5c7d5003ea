"""A script of scripts/remote on this machine, as a node runs it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.remote import compose


def on_a_node(
    script: str,
    inputs: Mapping[str, str],
    scratch: Path,
    *,
    verb: str = "",
    libraries: Sequence[str] = (),
    **programs: str,
) -> tuple[int, str, str]:
    """Run a script with its inputs.

    Args:
        script: file of scripts/remote.
        inputs: its variables.
        scratch: where the programs are put.
        verb: its argument, where it takes one.
        libraries: as for `compose`.
        programs: the shell text of each program that stands in for the node's own of that name.

    Returns:
        Its status, its standard output and its words.
    """
    for name, text in programs.items():
        (scratch / name).write_text(f"#!/bin/sh\n{text}\n")
        (scratch / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-s", *filter(None, [verb])],
        input=compose(script, inputs, libraries),
        capture_output=True,
        text=True,
        env={"PATH": f"{scratch}:/usr/bin:/bin"},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
