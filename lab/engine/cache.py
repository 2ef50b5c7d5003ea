"""Where built and downloaded parts are kept between runs."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.locks import locked

if TYPE_CHECKING:
    from collections.abc import Callable


def root() -> Path:
    """Give the folder of the cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spark-vllm" / "engine"


def status(message: str) -> None:
    """Tell the user what is going on."""
    print(message, file=sys.stderr, flush=True)


def obtain(name: str, make: Callable[[Path], None]) -> Path:
    """Give a folder of the cache, made first if it is not there.

    Two processes that want the same folder make it once; a folder that is there is complete.

    Args:
        name: The folder's name, which tells all that its content depends on.
        make: Fills a new folder.

    Returns:
        The folder.
    """
    folder = root() / name
    if folder.is_dir():
        return folder
    wait = f"Waiting for another process, which makes {name}."
    with locked(root() / f"{name}.lock", lambda: status(wait)):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=root(), prefix=f"{name}.") as new:
                content = Path(new) / "content"
                content.mkdir()
                make(content)
                content.rename(folder)
    return folder
