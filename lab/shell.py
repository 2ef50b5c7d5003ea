"""Commands of this machine: run one, say what the lab does, fail with one sentence."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class LabError(Exception):
    """Something the lab can't do, said in one or two sentences."""


def say(text: str) -> None:
    """Tell the operator, on stderr, what happens now."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def attempt(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 600,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, whatever its status.

    Raises:
        LabError: The command does not exist or took longer than the timeout.
    """
    try:
        return subprocess.run(
            list(argv),
            input=b"" if stdin is None else stdin,
            capture_output=True,
            check=False,
            env=None if env is None else dict(env),
            timeout=timeout,
        )
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is not installed on this machine.") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"No end after {timeout:.0f} s: {shlex.join(argv)}") from error


def run(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 600,
) -> str:
    """Run a command that has to succeed.

    Returns:
        Its stdout, without the last line's end.

    Raises:
        LabError: It failed; the message ends with the last lines it printed.
    """
    return output(argv, attempt(argv, stdin=stdin, env=env, timeout=timeout))


def output(argv: Sequence[str], done: subprocess.CompletedProcess[bytes]) -> str:
    """The stdout of a command that had to succeed, without the last line's end.

    Raises:
        LabError: It failed; the message ends with the last lines it printed.
    """
    if done.returncode:
        words = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-8:]
        raise LabError(f"Status {done.returncode} from {shlex.join(argv)}:\n" + "\n".join(words))
    return done.stdout.decode(errors="replace").rstrip("\n")


def heed_interrupts() -> None:
    """Let SIGINT be what it usually is, for this process and all that it starts.

    A shell starts what it puts into the background with SIGINT ignored. Pulumi ends its plugins by it, and
    waits five seconds for each that ignores it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
