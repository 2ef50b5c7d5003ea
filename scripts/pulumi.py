"""Pulumi's own command, for the operator's commands: on the project, without questions."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.errors import CommandError

ROOT = Path(__file__).parent.parent


class PulumiError(CommandError):
    """A call of pulumi failed; the message is what it said, or where to get it.

    Attributes:
        output: Its standard output.
    """

    def __init__(self, message: str, output: str = "") -> None:
        """Keep both."""
        super().__init__(message)
        self.output = output


def pulumi(*argv: str, stdin: str | None = None) -> str:
    """Run `pulumi`.

    Args:
        argv: its arguments; secrets go to stdin.
        stdin: what it reads.

    Returns:
        Its standard output.

    Raises:
        PulumiError: it is not installed, or failed.
    """
    try:
        done = subprocess.run(
            ["pulumi", *argv, "--non-interactive"],
            input=stdin,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise PulumiError('no pulumi on the PATH: install it, or `eval "$(make -s env)"`.') from None
    if done.returncode:
        raise PulumiError(f"pulumi {argv[0]} failed: {(done.stderr or done.stdout).strip()}", done.stdout)
    return done.stdout
