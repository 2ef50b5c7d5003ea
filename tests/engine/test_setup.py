"""Which engine is taken: the official one where it can be had, with as few attempts as possible."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from pathlib import Path

import pytest

from lab.engine import __main__ as cli
from lab.engine import build, cache, download, setup
from lab.engine.command.provider import VERSION
from lab.engine.errors import EngineError
from lab.engine.setup import Kind, ensure
from lab.engine.versions import COMMAND, DOCKER, PULUMI


@pytest.fixture(autouse=True)
def _own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be on a machine with nothing, where nothing can be downloaded."""

    def refuse(name: str) -> bytes:
        raise OSError(f"{name} cannot be reached")

    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(download, "_get", refuse)
    download.download.cache_clear()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend to build, and keep what was built."""
    made = []

    def pretend(part: build._Part, folder: Path) -> None:
        made.append(part.module)
        (folder / part.binary).write_text("built")

    def pretend_cli(folder: Path) -> None:
        pretend(build._CLI, folder)
        pretend(build._HOST, folder)

    monkeypatch.setattr(build, "_build", pretend)
    monkeypatch.setattr(build, "_make_cli", pretend_cli)
    return made


def install_cli(folder: Path, version: str, *, with_plugins: bool) -> Path:
    """Put a CLI into a folder that notes how often it was asked for a plugin."""
    folder.mkdir(parents=True, exist_ok=True)
    install = 'echo "no such host" >&2; exit 1'
    if with_plugins:
        target = '"$PULUMI_HOME/plugins/resource-$4-v$5"'
        install = f"mkdir -p {target}; echo binary > {target}/pulumi-resource-$4"
    script = folder / "pulumi"
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = version ]; then echo {version}; exit; fi\n'
        f'echo "$4" >> {folder}/asked\n{install}\n'
    )
    script.chmod(0o755)
    return folder


def test_an_installed_cli_wins_and_brings_its_plugins(tmp_path: Path, built: list[str]) -> None:
    folder = install_cli(tmp_path / "bin", "v3.261.0", with_plugins=True)
    for _ in range(2):
        engine = ensure(tmp_path / "home")
        assert (engine.cli, engine.docker, engine.command) == (Kind.OFFICIAL,) * 3
        assert engine.path[0] == folder
    assert (folder / "asked").read_text().split() == ["docker", "command"]
    assert built == []


def test_plugins_that_the_cli_cannot_fetch_are_built_and_not_asked_for_again(
    tmp_path: Path, built: list[str]
) -> None:
    folder = install_cli(tmp_path / "bin", "v3.261.0", with_plugins=False)
    for _ in range(2):
        engine = ensure(tmp_path / "home")
        assert (engine.cli, engine.docker, engine.command) == (Kind.OFFICIAL, Kind.BUILT, Kind.STAND_IN)
    assert (folder / "asked").read_text().split() == ["docker", "command"]
    assert built == ["docker"]


def test_plugins_of_the_user_are_shared(tmp_path: Path, built: list[str]) -> None:
    folder = install_cli(tmp_path / "bin", "v3.261.0", with_plugins=False)
    for name, version in (("docker", DOCKER), ("command", COMMAND)):
        plugin = setup._executable(tmp_path / "user" / ".pulumi", name, version)
        plugin.parent.mkdir(parents=True)
        plugin.write_text("binary")
    engine = ensure(tmp_path / "home")
    assert (engine.docker, engine.command) == (Kind.OFFICIAL,) * 2
    assert not (folder / "asked").exists()
    assert built == []


def test_an_old_cli_is_not_used_and_everything_is_built_once(
    tmp_path: Path, built: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    install_cli(tmp_path / "bin", "v3.99.0", with_plugins=True)
    for home in ("one", "one", "two"):
        engine = ensure(tmp_path / home)
        assert (engine.cli, engine.docker, engine.command) == (Kind.BUILT, Kind.BUILT, Kind.STAND_IN)
        plugin = setup._executable(tmp_path / home, "docker", DOCKER)
        assert plugin.readlink().is_relative_to(cache.root())
    assert built == ["cli", "host", "docker"]
    said = capsys.readouterr().err
    assert "v3.99.0; Pulumi 3.200 is needed" in said
    assert said.count("Downloading") == 1


@pytest.mark.parametrize("right", [True, False])
def test_a_download_counts_only_with_its_published_checksum(
    tmp_path: Path, built: list[str], monkeypatch: pytest.MonkeyPatch, *, right: bool
) -> None:
    install_cli(tmp_path / "pulumi", f"v{PULUMI}", with_plugins=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(tmp_path / "pulumi", "pulumi")
    archive = buffer.getvalue()
    asked = []

    def get(name: str) -> bytes:
        asked.append(name)
        if name.endswith(".tar.gz"):
            return archive
        digest = hashlib.sha256(archive if right else b"another").hexdigest()
        platforms = ("linux-x64", "linux-arm64", "darwin-arm64", "darwin-x64")
        return "".join(f"{digest}  pulumi-v{PULUMI}-{name}.tar.gz\n" for name in platforms).encode()

    monkeypatch.setattr(download, "_get", get)
    for _ in range(2):
        engine = ensure(tmp_path / "home")
        assert engine.cli is (Kind.OFFICIAL if right else Kind.BUILT)
        assert engine.docker is (Kind.OFFICIAL if right else Kind.BUILT)
    assert len(asked) == 2
    assert built == ([] if right else ["cli", "host", "docker"])


def test_without_go_there_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setattr("sys.argv", ["engine", "--home", str(tmp_path / "home")])
    assert cli.main() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"^error: There is no Go [\d.]+ or newer on the PATH", err, re.MULTILINE)
    with pytest.raises(EngineError):
        build.build_docker_plugin()


def test_the_command_prints_one_line_for_the_path(
    tmp_path: Path, built: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["engine", "--home", str(tmp_path / "home")])
    assert cli.main() == 0
    assert built == ["cli", "host", "docker"]
    (line,) = capsys.readouterr().out.splitlines()
    assert (Path(line.split(":")[0]) / "pulumi").exists()


def test_the_go_modules_and_the_stand_in_agree_with_the_python_packages() -> None:
    modules = (Path(build.__file__).parent / "cli" / "go.mod").read_text()
    assert re.findall(r"github.com/pulumi/pulumi/(?:pkg|sdk)/v3 (v\S+)", modules) == [f"v{PULUMI}"] * 2
    assert VERSION == COMMAND
