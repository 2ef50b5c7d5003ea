"""The official Pulumi CLI, downloaded and checked."""

from __future__ import annotations

import functools
import hashlib
import io
import platform
import sys
import tarfile
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING

from lab.engine import cache
from lab.engine.errors import EngineError
from lab.engine.versions import PULUMI

if TYPE_CHECKING:
    from pathlib import Path

_RELEASES = "https://get.pulumi.com/releases/sdk"
_TIMEOUT = 5
_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def downloaded() -> Path | None:
    """Give the folder of the official CLI if it was downloaded before."""
    folder = _bin(cache.root() / f"pulumi-{PULUMI}")
    return folder if folder.is_dir() else None


@functools.cache
def download() -> Path | None:
    """Give the folder of the official CLI, downloaded now; None if that cannot be done.

    One try: what has failed fails for the rest of the run.

    Returns:
        The folder that holds the CLI and its language hosts.
    """
    cache.status(f"Downloading Pulumi {PULUMI}.")
    try:
        return _bin(cache.obtain(f"pulumi-{PULUMI}", _fetch))
    except (OSError, EngineError, tarfile.TarError) as error:
        cache.status(f"  not to be had: {error}")
        return None


def _bin(folder: Path) -> Path:
    return folder / "pulumi"


def _fetch(folder: Path) -> None:
    architecture = _ARCHITECTURES.get(platform.machine().lower(), platform.machine())
    name = f"pulumi-v{PULUMI}-{sys.platform}-{architecture}.tar.gz"
    sums = _get(f"pulumi-{PULUMI}-checksums.txt").decode()
    expected = {file.lstrip("*"): digest for digest, file in (line.split() for line in sums.splitlines())}
    archive = _get(name)
    if hashlib.sha256(archive).hexdigest() != expected.get(name):
        raise EngineError(f"{name} is not the file whose SHA-256 is published for it")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")


def _get(name: str) -> bytes:
    with urllib.request.urlopen(f"{_RELEASES}/{name}", timeout=_TIMEOUT) as response:  # noqa: S310 - https
        if response.status != HTTPStatus.OK:
            raise EngineError(f"{name} answers {response.status}")
        return bytes(response.read())
