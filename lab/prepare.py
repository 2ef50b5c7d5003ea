"""What `make test` does before the tests: whatever may take long, or install something.

What cannot be had is said here, and again by the tests that are skipped for the want of it.
"""

from __future__ import annotations

from lab.engine.errors import EngineError
from lab.environment import environment
from lab.images import stub
from lab.instance import Lab
from lab.machine import install_sshd, require_machine
from lab.record import default_name
from lab.shell import LabError, say


def stub_disk() -> None:
    """Keep a disk with the stub image, which most labs of the tests begin with."""
    require_machine()
    lab = Lab(f"{default_name()}-disk")
    try:
        image = stub(lab.engine())
        if not lab.disks.has(image):
            lab.up()
            lab.load("head", image)
            lab.keep_disk("head", image)
    finally:
        lab.down()


def main() -> None:
    """Install and build."""
    for step in (install_sshd, environment, stub_disk):
        try:
            step()
        except (LabError, EngineError) as error:
            say(str(error))


if __name__ == "__main__":
    main()
