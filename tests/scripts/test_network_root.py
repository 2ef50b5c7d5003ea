"""What network-root.sh makes of netplan's answers, which differ between its versions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.network import network_inputs
from components.settings import parse
from tests import samples

BROKEN = "network:\n  ethernets: {enp1s0f0np0: [\n"
WHOLE = """network:
  version: 2
  ethernets:
    enp1s0f0np0:
      mtu: 9000
    other0:
      dhcp4: true
"""


def subjects(place: Path, netplan: str, text: str) -> list[str]:
    """What a netplan file is about, by a netplan that answers so."""
    settings = parse(samples.raw(samples.config(2)))
    root = network_inputs(settings, settings.nodes[1], project="spark-vllm", stack="test")["ROOT"]
    functions, _, _ = root.rpartition('main "$@"')
    program = place / "netplan"
    program.write_text(f"#!/bin/bash\n{netplan}\n")
    program.chmod(0o755)
    file = place / "40-cx7.yaml"
    file.write_text(text)
    done = subprocess.run(
        ["bash", "-s", str(file)],
        input=functions + '\nsubjects "$1"\n',
        env={"PATH": f"{place}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(set(done.stdout.splitlines()))


@pytest.mark.parametrize("status", [1, 0], ids=["netplan 0.x", "netplan 1.x"])
def test_a_file_that_netplan_cannot_read_counts_as_more_than_our_rails(tmp_path: Path, status: int) -> None:
    found = subjects(tmp_path, f"echo 'Command failed' >&2; exit {status}", BROKEN)
    assert found == ["other something that netplan cannot read from this file alone", "rail enp1s0f0np0"]


def test_what_a_file_also_configures_is_named(tmp_path: Path) -> None:
    assert subjects(tmp_path, "cat <<'END'\n" + WHOLE + "END", WHOLE) == ["other other0", "rail enp1s0f0np0"]


def test_a_file_without_our_rails_says_nothing_of_them(tmp_path: Path) -> None:
    found = subjects(tmp_path, "exit 0", "# enp1s0f0np0 was here\n")
    assert not [line for line in found if line.startswith("rail")]
