"""What the lab needs of the machine it runs on, and the one thing it may add: packages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab.shell import LabError, attempt, run, say

_PACKAGE_OF = {
    "dockerd": "docker.io",
    "slirp4netns": "slirp4netns",
    "debootstrap": "debootstrap",
    "socat": "socat",
    "ip": "iproute2",
    "ssh-agent": "openssh-client",
}
_POLICY = Path("/usr/sbin/policy-rc.d")  # Debian's way to install a daemon without starting it
_GPU_SIGNS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0")


def require_machine() -> None:
    """Refuse a machine that the lab can't or shouldn't run on, and install the tools that it lacks.

    Raises:
        LabError: Not root, an NVIDIA GPU without leave to go on, or tools missing and no apt.
    """
    require_root()
    if os.environ.get("SPARK_LAB_ON_GPU") != "1" and any(Path(sign).exists() for sign in _GPU_SIGNS):
        raise LabError(
            "This machine has an NVIDIA GPU; the lab is meant for machines without one. "
            "Set SPARK_LAB_ON_GPU=1 to run it here all the same."
        )
    missing = [package for tool, package in _PACKAGE_OF.items() if shutil.which(tool) is None]
    if missing:
        _install(missing)


def install_sshd() -> None:
    """Install the SSH server that the tests of the engine start for themselves, without starting one.

    Raises:
        LabError: It could not be installed.
    """
    if Path("/usr/sbin/sshd").exists() or os.geteuid() != 0:
        return
    _install(["openssh-server"])


def require_root() -> None:
    """Refuse whoever can't make namespaces.

    Raises:
        LabError: Not root.
    """
    if os.geteuid() != 0:
        raise LabError("The lab makes namespaces and network links, so it needs root: run it with sudo.")


def _install(packages: list[str]) -> None:
    if shutil.which("apt-get") is None:
        raise LabError(f"Install these first, this machine has no apt-get to do it: {', '.join(packages)}.")
    engine = "docker.io" in packages
    if engine and attempt(["dpkg-query", "--status", "docker-ce"]).returncode == 0:
        raise LabError("docker-ce is installed but its dockerd is not on the PATH: repair that first.")
    say(f"installing {', '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update"], env=environment)
    guarded = not _POLICY.exists()
    if guarded:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        run(
            ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
            env=environment,
            timeout=900,
        )
    finally:
        if guarded:
            _POLICY.unlink()
    units = {
        "docker.io": ["docker.service", "docker.socket", "containerd.service"],
        "openssh-server": ["ssh.service", "ssh.socket"],
    }
    added = [unit for package in packages for unit in units.get(package, [])]
    if added and Path("/run/systemd/system").is_dir():
        run(["systemctl", "disable", *added])


def cache_directory() -> Path:
    """Where the lab keeps what is dear to make: images and the registry's layers."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "spark-vllm" / "lab"
