"""What ends a command with a sentence instead of a traceback."""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot go on; the message says what is wrong and what to do."""
