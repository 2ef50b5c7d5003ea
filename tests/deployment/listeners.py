"""What listens on a node, and what may: the table of docs/security.md."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from ruamel.yaml import YAML

from components.gate import ports
from components.settings import RAY_WORKER_PORTS, Executor, Node, Settings, parse
from lab.deployment import Deployment
from tests import samples

EPHEMERAL = 32768
DASHBOARD = 8265
EVERYWHERE = ("0.0.0.0", "*", "[::]")  # noqa: S104 - compared, not bound


class Listener(NamedTuple):
    """A TCP port that somebody listens on."""

    address: str
    port: int


def settings_of(deployment: Deployment) -> Settings:
    """The settings of a stack, without its secrets."""
    config = YAML(typ="safe").load(deployment.config_file)["config"]
    own = {key.removeprefix("spark-vllm:"): value for key, value in config.items() if "spark-vllm:" in key}
    return parse(samples.raw({key: value for key, value in own.items() if "secure" not in value}))


def listeners(deployment: Deployment, node: str) -> set[Listener]:
    """All of a node."""
    found = set()
    for line in deployment.lab.root(node, "ss", "-Hltn").splitlines():
        address, _, port = line.split()[3].rpartition(":")
        found.add(Listener(address.partition("%")[0], int(port)))
    return found


def strangers(found: set[Listener], settings: Settings, node: Node) -> set[Listener]:
    """The listeners that are not intended on a node.

    - the ports that the gate keeps free for us; Ray's on every address of the node, for it knows no other way
    - those that Linux hands out and those of Ray's workers, by which ranks meet: on the fabric or everywhere
    - anything on loopback
    """
    fixed = {port for port, _ in ports(settings, node)}
    own = {str(rail.address.ip) for rail in node.rails}
    over_ray = settings.ranks_over is Executor.RAY
    low, high = RAY_WORKER_PORTS

    def intended(each: Listener) -> bool:
        if each.address.strip("[]") not in (*EVERYWHERE, "::"):
            address = ipaddress.ip_address(each.address.strip("[]").removeprefix("::ffff:"))
            if address.is_loopback:
                return True
            if str(address) not in own:
                return False
        in_range = each.port >= EPHEMERAL or (over_ray and low <= each.port <= high)
        return each.port in fixed or in_range

    return {each for each in found if not intended(each)}
