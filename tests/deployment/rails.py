"""The rails of a lab's node, and the scripts of the network on them, sent as the program sends them."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from components.network import link_inputs, network_inputs
from components.remote import compose
from components.settings import Settings, parse
from lab.files import SYSFS_ROOT
from lab.instance import Lab
from tests import samples

FIRST, TWIN = "enp1s0f0np0", "enP2p1s0f0np0"
FOREIGN = "/etc/netplan/40-cx7.yaml"
"""The nodes' own netplan file names both rails: to the program it is somebody else's."""
OWN = "/etc/netplan/90-spark-vllm-test.yaml"
KEPT = f"{FOREIGN}.kept-by-spark-vllm-test"
STATE = "/run/spark-vllm-network-test"
DRAFTS = "/run/netplan"
UNIT = "spark-vllm-network-test"
Change = Callable[[samples.Config], None]
Ended = subprocess.CompletedProcess[str]


class Rails:
    """A node of two, seen from its rails."""

    def __init__(self, lab: Lab, name: str = "worker") -> None:
        self.lab = lab
        self.name = name

    def root(self, command: str, *, stdin: bytes | None = None) -> str:
        """Run shell words as root, past the network."""
        return self.lab.root(self.name, "bash", "-c", command, stdin=stdin).strip()

    def network(  # noqa: PLR0913 - what may be otherwise than usual
        self,
        verb: str,
        change: Change | None = None,
        *,
        via: str = "",
        deadman: int = 60,
        heard: int = 4,
        connection: Path | None = None,
    ) -> Ended:
        """Run network.sh; by another address than usual, or over a connection that is kept."""
        settings = _settings(change)
        node = next(each for each in settings.nodes if each.name == self.name)
        inputs = network_inputs(settings, node, project="spark-vllm", stack="test")
        for name, seconds in (("DEADMAN", deadman), ("DELAY", 1)):
            inputs["ROOT"] = re.sub(rf"(?m)^{name}=\d+$", f"{name}={seconds}", inputs["ROOT"], count=1)
        return self.ssh(verb, compose("network.sh", {**inputs, "HEARD_SECONDS": str(heard)}), via, connection)

    def link(self, change: Change | None = None) -> Ended:
        """Run link.sh."""
        settings = _settings(change)
        node = next(each for each in settings.nodes if each.name == self.name)
        return self.ssh("", compose("link.sh", link_inputs(settings, node)))

    def ssh(self, verb: str, script: str, via: str = "", connection: Path | None = None) -> Ended:
        """Run a script on the node, over SSH and on standard input."""
        config = self.lab.status()["sshConfig"]
        way = [f"-oHostName={via.replace('%', '%%')}", f"-oProxyCommand=ssh -F {config} -W [%h]:%p head"]
        kept = ["-oControlMaster=auto", "-oControlPersist=30", f"-oControlPath={connection}"]
        options = [*(way if via else []), *(kept if connection else [])]
        argv = ["ssh", "-F", config, *options, self.name, "--", f"timeout 100 bash -s -- {verb}"]
        return subprocess.run(argv, input=script, capture_output=True, text=True, timeout=150, check=False)

    def addresses(self) -> list[str]:
        """IPv4 addresses of both rails."""
        return self.root(
            f"for r in {FIRST} {TWIN}; do ip -4 -o addr show dev $r; done | awk '{{print $4}}'"
        ).split()

    def link_local(self, interface: str = FIRST) -> str:
        """Address with the head's interface behind it, which has the same name."""
        found = self.root(f"ip -6 -o addr show dev {interface} scope link | awk '{{print $4}}'")
        return f"{found.partition('/')[0]}%{interface}" if found else ""

    def mtu(self, interface: str = TWIN) -> int:
        """MTU of a rail, in bytes."""
        return int(self.root(f"cat /sys/class/net/{interface}/mtu"))

    def files(self) -> str:
        """What /etc/netplan holds, with times."""
        return self.root("cd /etc/netplan && sha256sum * && stat -c '%y %n' *")

    def put(self, text: str, file: str = FOREIGN) -> None:
        """Write a netplan file, without applying it."""
        self.root(f"install -m 600 /dev/stdin {file}", stdin=text.encode())

    def reboot(self) -> None:
        """Shut the node down in order and boot it, whatever addresses it then has."""
        self.lab.outer.docker("stop", "--time=30", self.lab.container(self.name))
        self.lab.nodes.start([self.lab.node(self.name)])


def _settings(change: Change | None) -> Settings:
    configuration = samples.config(network={"sysfs": SYSFS_ROOT})
    if change:
        change(configuration)
    return parse(samples.raw(configuration))


def worker_rail(number: int, address: str, **network: object) -> Change:
    """Another address for one of the worker's rails, and keys of the network."""

    def change(configuration: samples.Config) -> None:
        configuration["nodes"][1]["rails"][number]["address"] = address
        configuration["network"].update(network)

    return change


def done(ended: Ended, *words: str) -> None:
    """Assert that a script succeeded and said these words."""
    assert ended.returncode == 0, ended.stderr
    for word in words:
        assert word in ended.stdout + ended.stderr


def refused(ended: Ended, *words: str) -> None:
    """Assert that a script ended in an error with these words."""
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for word in words:
        assert word in ended.stderr


def eventually(true: Callable[[], bool], seconds: float = 20) -> None:
    """Assert that something becomes true in time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.3)
