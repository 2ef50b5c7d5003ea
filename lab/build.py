"""Images of the outer engine, named after what they are made of: built again only when an input changes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.locks import locked
from lab.shell import LabError, run, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.outer import Outer

_SUITE = "bookworm"
_APT_SETTINGS = 'APT::Keep-Downloaded-Packages "false";\n'
_CA_IN_IMAGE = "/usr/local/share/spark-lab-ca.pem"
_CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_BUILD_SECONDS = 3600


def build_image(  # noqa: PLR0913
    outer: Outer,
    context: Path,
    name: str,
    *,
    dockerfile: str = "Dockerfile",
    build_args: Mapping[str, str] | None = None,
    base: str | None = None,
) -> str:
    """Build an image unless the engine has it.

    The Dockerfile starts with `ARG BASE` and `FROM ${BASE}`. A build sees the network through the engine's
    namespace, and the machine's CA bundle, if it has one, through the base image.

    Args:
        outer: The engine, running.
        context: The build's folder; all its files count for the key.
        name: The image's name, without a tag.
        dockerfile: Path of the Dockerfile inside the context.
        build_args: Further build arguments; they count for the key too.
        base: What to build on; Debian's minimal system if None.

    Returns:
        `name:key`.

    Raises:
        LabError: The build failed; the message holds its last lines.
    """
    arguments = {**(build_args or {}), "BASE": base or base_image(outer)}
    tag = f"{name}:{_key(_content(context), dockerfile, json.dumps(arguments, sort_keys=True))}"
    proxies = {key: os.environ[key] for key in _PROXY_VARIABLES if os.environ.get(key)}
    options = [f"--build-arg={key}={value}" for key, value in {**proxies, **arguments}.items()]
    with _one_builds(outer, tag) as there:
        if not there:
            say(f"building {tag}")
            outer.docker(
                "build", "--quiet", "--network=host", f"--file={context / dockerfile}", f"--tag={tag}",
                *options, str(context),
                timeout=_BUILD_SECONDS,
            )  # fmt: skip
    return tag


def base_image(outer: Outer) -> str:
    """Debian's minimal system, with the CA bundle that this machine trusts.

    On Debian it comes from the mirror of the machine's own apt; elsewhere the engine pulls it.

    Returns:
        The image's tag.
    """
    certificates = _certificates()
    mirror = _debian_mirror()
    dockerfile = _base_dockerfile(from_mirror=mirror is not None, certificates=bool(certificates))
    tag = f"spark-lab/base:{_key(dockerfile, _APT_SETTINGS, certificates, mirror or '', platform.machine())}"
    with _one_builds(outer, tag) as there, tempfile.TemporaryDirectory(prefix="spark-lab-") as scratch:
        if not there:
            say(f"making Debian {_SUITE} from {mirror or 'the registry of Docker'}")
            context = Path(scratch)
            if mirror:
                _debootstrap(context, mirror)
            (context / "Dockerfile").write_text(dockerfile)
            (context / "apt.conf").write_text(_APT_SETTINGS)
            (context / "ca.pem").write_bytes(certificates)
            outer.docker("build", "--quiet", f"--tag={tag}", scratch)
    return tag


def _certificates() -> bytes:
    """The CA bundle that the environment names, else the system's own, if there is one."""
    named = next((path for key in _CA_VARIABLES if (path := os.environ.get(key))), None)
    if named is not None:
        return Path(named).read_bytes()
    return _SYSTEM_CA.read_bytes() if _SYSTEM_CA.is_file() else b""


@contextlib.contextmanager
def _one_builds(outer: Outer, tag: str) -> Iterator[bool]:
    """Whether the engine has the image; if not, nobody else makes another one of that name meanwhile."""
    if outer.has_image(tag):
        yield True
        return
    with locked(outer.cache / "locks" / tag.replace("/", "-")):
        yield outer.has_image(tag)


def _base_dockerfile(*, from_mirror: bool, certificates: bool) -> str:
    lines = (
        ["FROM scratch", "ADD root.tar /", 'CMD ["bash"]'] if from_mirror else [f"FROM debian:{_SUITE}-slim"]
    )
    lines.append("COPY apt.conf /etc/apt/apt.conf.d/lab")
    if certificates:
        lines += [f"COPY ca.pem {_CA_IN_IMAGE}", *(f"ENV {key}={_CA_IN_IMAGE}" for key in _CA_VARIABLES)]
    return "\n".join(lines) + "\n"


def _debootstrap(context: Path, mirror: str) -> None:
    root = context / "root"
    # A mount namespace of its own: what debootstrap mounts can't stay behind on the host.
    run(["unshare", "--mount", "debootstrap", "--variant=minbase", _SUITE, str(root), mirror], timeout=900)
    shutil.rmtree(root / "var/cache/apt/archives")
    run(["tar", "-C", str(root), "-cf", str(context / "root.tar"), "."])
    shutil.rmtree(root)


@functools.cache
def _debian_mirror() -> str | None:
    """The mirror of this machine's apt for the suite, if this is such a Debian."""
    if shutil.which("apt-get") is None:
        return None
    targets = run(["apt-get", "indextargets", "--format", "$(SUITE) $(CODENAME) $(COMPONENT) $(REPO_URI)"])
    for line in targets.splitlines():
        fields = line.split()
        if _SUITE in fields[:2] and fields[2] == "main":
            return fields[3]
    return None


def _content(context: Path) -> str:
    files = sorted(path for path in context.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    if not files:
        raise LabError(f"{context} holds no files to build an image from.")
    return _key(*(f"{path.relative_to(context)} {path.stat().st_mode:o} {_digest(path)}" for path in files))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _key(*parts: str | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8) + data)
    return total.hexdigest()[:12]
