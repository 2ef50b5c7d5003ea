"""Where the operator's commands write: plain words, wrapped for a terminal and for nothing else."""

from __future__ import annotations

import os

from rich.console import Console
from rich.text import Text

WIDE = 200


def out(*, tables: bool = False) -> Console:
    """Standard output, for what a command is asked for; where it shows tables, their cells are wrapped."""
    return _console(stderr=False, soft_wrap=not tables)


def err() -> Console:
    """Standard error, for what is said beside it."""
    return _console(stderr=True, soft_wrap=True)


def warn(words: str) -> None:
    """Say what is missing beside what was asked for."""
    err().print(Text(f"warning: {words}", style="yellow"))


def _console(*, stderr: bool, soft_wrap: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=soft_wrap)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console
