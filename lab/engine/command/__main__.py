"""The plugin's process: `python -m lab.engine.command ENGINE_ADDRESS` prints its port and serves."""

from __future__ import annotations

import asyncio
import sys

from lab.engine.command.provider import serve

if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
