from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lab import build
from lab.outer import Outer
from lab.shell import LabError


def test_base_comes_from_a_mirror_or_a_registry() -> None:
    assert "FROM scratch\nADD root.tar /" in build._base_dockerfile(from_mirror=True, certificates=False)
    assert "FROM debian:bookworm-slim" in build._base_dockerfile(from_mirror=False, certificates=False)


def test_a_build_trusts_whom_the_machine_trusts_whatever_the_shell_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in build._CA_VARIABLES:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(build, "_SYSTEM_CA", tmp_path / "system.crt")
    assert build._certificates() == b""
    (tmp_path / "system.crt").write_bytes(b"of the system")
    assert build._certificates() == b"of the system"
    (tmp_path / "own.crt").write_bytes(b"of the shell")
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "own.crt"))
    assert build._certificates() == b"of the shell"


def test_base_names_a_ca_bundle_only_where_there_is_one() -> None:
    assert "ENV PIP_CERT=" in build._base_dockerfile(from_mirror=True, certificates=True)
    assert "ca.pem" not in build._base_dockerfile(from_mirror=True, certificates=False)


def test_mirror_is_that_of_the_machines_own_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = "stable-security bookworm-security main http://a/\nstable bookworm main http://b/\n"
    monkeypatch.setattr(shutil, "which", lambda tool: tool)
    monkeypatch.setattr(build, "run", lambda _: targets)
    assert build._debian_mirror.__wrapped__() == "http://b/"

    monkeypatch.setattr(build, "run", lambda _: "noble noble main http://c/\n")
    assert build._debian_mirror.__wrapped__() is None


def test_content_counts_names_bytes_and_modes(tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_text("a")
    keys = [build._content(tmp_path)]
    file.write_text("b")
    keys.append(build._content(tmp_path))
    file.chmod(0o755)
    keys.append(build._content(tmp_path))
    file.rename(tmp_path / "two")
    keys.append(build._content(tmp_path))

    assert len(set(keys)) == 4
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/two.pyc").touch()
    assert build._content(tmp_path) == keys[-1]


class SlowEngine(Outer):
    """An engine that says what it is asked to build, and takes its time."""

    built: ClassVar[list[str]] = []

    @property
    def cache(self) -> Path:
        return Path(self.name)

    def has_image(self, tag: str) -> bool:
        return tag in self.built

    def docker(self, *argv: str, **_: Any) -> str:  # noqa: ANN401 - how does not matter here
        time.sleep(0.2)
        tag = next(word for word in argv if word.startswith("--tag="))
        SlowEngine.built.append(tag.removeprefix("--tag="))
        return ""


def test_two_that_want_an_image_at_once_have_it_built_once(tmp_path: Path) -> None:
    engine = SlowEngine(str(tmp_path / "cache"))
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    with ThreadPoolExecutor() as pool:
        tags = list(pool.map(lambda _: build.build_image(engine, context, "a/b", base="scratch"), range(4)))
    assert engine.built == [tags[0]] == list(set(tags))


def test_empty_context_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no files"):
        build._content(tmp_path)
