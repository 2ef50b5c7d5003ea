"""Sees to it that there is a Pulumi engine: the official one where that can be had, else one built here."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.engine import cache
from lab.engine.build import build_cli, build_docker_plugin, built_cli
from lab.engine.download import download, downloaded
from lab.engine.versions import COMMAND, DOCKER

if TYPE_CHECKING:
    from collections.abc import Callable

_OLDEST = (3, 200)
_REPOSITORY = Path(__file__).parents[2]
_SCRIPT = "#!/bin/sh\n# spark-vllm:"


class Kind(enum.StrEnum):
    """Where a part of the engine comes from."""

    OFFICIAL = "official"
    BUILT = "built from Go modules"
    STAND_IN = "a stand-in"


@dataclasses.dataclass(frozen=True)
class Engine:
    """A Pulumi engine that is ready for use.

    Attributes:
        home: Its PULUMI_HOME, which holds the plugins.
        path: The folders to be put first on the PATH.
        cli: Where the CLI and its language host come from.
        docker: Where the docker plugin comes from.
        command: Where the command plugin comes from.
    """

    home: Path
    path: tuple[Path, ...]
    cli: Kind
    docker: Kind
    command: Kind

    def environment(self) -> dict[str, str]:
        """Give the variables that make every tool use this engine, and nothing from the network."""
        return {
            "PATH": os.pathsep.join([*map(str, self.path), os.environ.get("PATH", os.defpath)]),
            "PULUMI_HOME": str(self.home),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_DISABLE_REGISTRY_RESOLVE": "true",
        }

    def __str__(self) -> str:
        """Describe the engine in one line."""
        return f"Pulumi engine: CLI {self.cli}, docker plugin {self.docker}, command plugin {self.command}"


def ensure(home: Path) -> Engine:
    """Make sure that there is an engine, and install its plugins into a home.

    In this order: the official CLI on the PATH, what an earlier run has left in the cache, a download of the
    official CLI, a build from Go modules. Plugins follow the CLI, and are built where it cannot fetch them.

    Args:
        home: The PULUMI_HOME to use.

    Returns:
        The engine.

    Raises:
        EngineError: If none of this works.
    """
    home = home.absolute()
    official = _installed() or downloaded() or (None if built_cli() else download())
    return Engine(
        home=home,
        # the language host takes the Python that it finds on the PATH
        path=(official or build_cli(), Path(sys.prefix) / "bin"),
        cli=Kind.OFFICIAL if official else Kind.BUILT,
        docker=_docker_plugin(home, official),
        command=_command_plugin(home, official),
    )


def _installed() -> Path | None:
    """Give the folder of a CLI on the PATH that is not ours and not too old."""
    found = shutil.which("pulumi")
    if found is None or cache.root().resolve() in Path(found).resolve().parents:
        return None
    said = subprocess.run(
        [found, "version"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"},
    ).stdout
    version = re.match(r"v(\d+)\.(\d+)", said)
    if version is None or tuple(map(int, version.groups())) < _OLDEST:
        cache.status(
            f"{found} is {said.strip() or 'broken'}; Pulumi {'.'.join(map(str, _OLDEST))} is needed."
        )
        return None
    return Path(found).parent


def _docker_plugin(home: Path, official: Path | None) -> Kind:
    executable = _executable(home, "docker", DOCKER)
    if _have_official(executable, home, official, "docker", DOCKER):
        return Kind.OFFICIAL
    binary = build_docker_plugin()
    if not executable.is_symlink() or executable.readlink() != binary:
        _replace(executable, lambda new: new.symlink_to(binary))
    return Kind.BUILT


def _command_plugin(home: Path, official: Path | None) -> Kind:
    executable = _executable(home, "command", COMMAND)
    if _have_official(executable, home, official, "command", COMMAND):
        return Kind.OFFICIAL
    run = [sys.executable, "-P", "-m", "lab.engine.command"]
    script = (
        f"{_SCRIPT} a stand-in, for machines without the official plugin only\n"
        f'PYTHONPATH={shlex.quote(str(_REPOSITORY))} exec {shlex.join(run)} "$@"\n'
    )
    if not executable.is_file() or executable.read_text() != script:

        def write(new: Path) -> None:
            new.write_text(script)
            new.chmod(0o755)

        _replace(executable, write)
    return Kind.STAND_IN


def _executable(home: Path, name: str, version: str) -> Path:
    return home / "plugins" / f"resource-{name}-v{version}" / f"pulumi-resource-{name}"


def _have_official(executable: Path, home: Path, cli: Path | None, name: str, version: str) -> bool:
    """Tell whether the official plugin is in the home, after an attempt to bring it there.

    A home that holds a plugin of ours is a home for which that attempt has failed before.
    """
    if executable.is_file():
        return not _is_ours(executable)
    if cli is None:
        return False
    shared = _executable(Path.home() / ".pulumi", name, version)
    if shared.is_file() and not _is_ours(shared):
        _replace(executable, lambda new: new.symlink_to(shared))
        return True
    cache.status(f"Installing the {name} plugin {version}.")
    result = subprocess.run(
        [str(cli / "pulumi"), "plugin", "install", "resource", name, version],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PULUMI_HOME": str(home), "PULUMI_SKIP_UPDATE_CHECK": "true"},
    )
    if result.returncode != 0:
        cache.status(f"  not to be had: {(result.stderr.splitlines() or ['pulumi said nothing'])[-1]}")
    return executable.is_file()


def _is_ours(executable: Path) -> bool:
    if cache.root().resolve() in executable.resolve().parents:
        return True
    with executable.open("rb") as file:
        return file.read(len(_SCRIPT)) == _SCRIPT.encode()


def _replace(path: Path, make: Callable[[Path], object]) -> None:
    """Put a new file in the place of what may be there, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    make(new)
    new.replace(path)
