"""The first look at a node: each thing that is missing is named, with the node and the remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from components.remote import compose

TOOLS = ("awk", "grep", "id", "sed", "timeout", "uname")
DOCKER = """case $1 in
  version) echo '28.5.1 arm64' ;;
  info) echo '{"io.containerd.runc.v2":{},"nvidia":{"path":"nvidia-container-runtime"}}' ;;
esac"""
# As on a GB10, whose memory is not the GPU's own.
NVIDIA_SMI = """case $1 in *driver_version*) echo 580.95.05 ;; *) echo '[N/A]' ;; esac"""


def look(place: Path, *, devices: str = "", **programs: str) -> subprocess.CompletedProcess[str]:
    """Run the script with these programs and a few of the system's, and no others."""
    (place / "bin").mkdir()
    for name in TOOLS:
        (place / "bin" / name).symlink_to(shutil.which(name) or name)
    for name, text in programs.items():
        file = place / "bin" / name.replace("_", "-")
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    (place / "meminfo").write_text("MemTotal: 125829120 kB\nMemAvailable: 104857600 kB\n")
    inputs = {"NODE": "worker", "GPUS": "all", "DEVICES": devices, "MEMINFO": str(place / "meminfo")}
    script = compose("preflight.sh", inputs, ["machine.sh"]).replace(":/usr/local/sbin:/usr/sbin:/sbin", "")
    return subprocess.run(
        ["/bin/bash", "-s"],
        input=script,
        env={"PATH": str(place / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.report("M10")
def test_a_spark_passes_though_its_gpu_tells_no_memory(tmp_path: Path) -> None:
    done = look(tmp_path, devices=os.devnull, docker=DOCKER, nvidia_smi=NVIDIA_SMI)
    assert done.returncode == 0, done.stderr
    facts = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert (facts["docker"], facts["arch"], facts["driver"]) == ("28.5.1", "arm64", "580.95.05")
    assert (facts["memory_total_kib"], facts["memory_available_kib"]) == ("125829120", "104857600")


@pytest.mark.report("S3")
def test_docker_that_only_a_login_shell_finds_is_told_with_the_path(tmp_path: Path) -> None:
    done = look(tmp_path)
    assert done.returncode == 1
    assert f"worker: no docker on the PATH of a non-interactive SSH session ({tmp_path}/bin)" in done.stderr


@pytest.mark.report("K1")
def test_a_docker_that_does_not_answer_is_told_in_its_own_words(tmp_path: Path) -> None:
    done = look(tmp_path, docker="echo 'permission denied while trying to connect' >&2; exit 1")
    assert done.returncode == 1
    assert "cannot use Docker: permission denied" in done.stderr
    assert "sudo usermod -aG docker" in done.stderr


@pytest.mark.report("F11")
def test_a_device_that_is_missing_on_one_node_is_no_silent_fall_back_to_tcp(tmp_path: Path) -> None:
    missing = str(tmp_path / "infiniband")
    done = look(tmp_path, devices=f"{os.devnull}\n{missing}", docker=DOCKER, nvidia_smi=NVIDIA_SMI)
    assert done.returncode == 1
    assert f"worker: {missing} is missing, so NCCL would fall back to TCP" in done.stderr


@pytest.mark.report("D12")
@pytest.mark.parametrize("toolkit", [True, False])
def test_a_node_without_the_nvidia_runtime_is_named(tmp_path: Path, *, toolkit: bool) -> None:
    bare = DOCKER.replace(',"nvidia":{"path":"nvidia-container-runtime"}', "")
    hook = {"nvidia_container_runtime_hook": ":"} if toolkit else {}
    done = look(tmp_path, docker=bare, nvidia_smi=NVIDIA_SMI, **hook)
    assert done.returncode == (0 if toolkit else 1), done.stderr
    assert toolkit or "worker: Docker has no NVIDIA runtime, so --gpus would fail" in done.stderr
