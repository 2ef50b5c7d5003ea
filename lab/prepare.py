"""What `make test` does before the tests: whatever may take long, or install something.

What cannot be had is said here, and again by the tests that are skipped for the want of it.
"""

from __future__ import annotations

from lab.engine.errors import EngineError
from lab.environment import environment
from lab.machine import install_sshd, require_machine
from lab.shell import LabError, say


def main() -> None:
    """Install and build."""
    for step in (install_sshd, environment, require_machine):
        try:
            step()
        except (LabError, EngineError) as error:
            say(str(error))


if __name__ == "__main__":
    main()
