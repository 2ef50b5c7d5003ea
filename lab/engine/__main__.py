"""`python -m lab.engine --home DIR`: see to an engine, and print what belongs first on the PATH."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from lab.engine import cache
from lab.engine.errors import EngineError
from lab.engine.setup import ensure


def main() -> int:
    """Run the command; its only word on stdout is the line for the PATH.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.engine", description=main.__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the PULUMI_HOME that gets the plugins")
    arguments = parser.parse_args()
    try:
        engine = ensure(arguments.home)
    except EngineError as error:
        cache.status(f"error: {error}")
        return 1
    cache.status(str(engine))
    print(os.pathsep.join(map(str, engine.path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
