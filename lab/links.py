"""Bridges and cables: every NIC of a node is one end of a veth pair, the other end is in a bridge.

All of it lives in the outer engine's network namespace; the bridges have no address.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.shell import LabError
from lab.topology import OPERATOR_ADDRESS, REGISTRY_ADDRESS, Nic, Node, short_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.outer import Outer

FABRICS = ("mgmt", "rail0", "rail1", "wifi")
_JUMBO = 9000


@dataclass(frozen=True)
class Links:
    """The bridges of one instance and what is plugged into them."""

    outer: Outer
    instance: str

    def ensure_bridges(self, operator: Path) -> None:
        """Make the bridges, and the operator's network namespace with its place on the management network.

        Args:
            operator: Where that namespace is to be found.
        """
        present = self._present()
        # A bridge with a link-local address would answer like one more node.
        silent = ["addrgenmode none"] if Path("/proc/sys/net/ipv6").exists() else []
        self._batch(
            line
            for fabric in FABRICS
            if (bridge := self._bridge(fabric)) not in present
            for line in (
                f"link add {bridge} type bridge mcast_snooping 0",
                *(f"link set {bridge} {words}" for words in (*silent, f"mtu {_JUMBO} up")),
            )
        )
        cable = f"{short_id(self.instance)}-op"
        if cable in present:
            return
        operator.touch()
        self.outer.inside("unshare", f"--net={operator}", "ip", "link", "set", "lo", "up")
        self._batch(
            [
                f"link add {cable} type veth peer name mgmt netns {operator}",
                f"link set {cable} master {self._bridge('mgmt')} up",
            ]
        )
        addresses = [f"address add {address}/24 dev mgmt" for address in (OPERATOR_ADDRESS, REGISTRY_ADDRESS)]
        self._batch([*addresses, "link set mgmt up"], network=operator)

    def plug_in(self, nodes: Iterable[Node], pids: dict[str, int]) -> None:
        """Give nodes the NICs that they lack, and connect the cables that were pulled.

        Args:
            nodes: Running ones.
            pids: Their first processes, as the engine numbers them.
        """
        present = self._present()
        lines = []
        for node in nodes:
            for nic in node.nics:
                cable = self._cable(node, nic)
                if cable not in present:
                    peer = f"name {nic.name} address {nic.mac} netns {pids[node.name]}"
                    lines.append(f"link add {cable} mtu {nic.mtu} type veth peer {peer}")
                    lines.append(f"link set {cable} master {self._bridge(nic.fabric)}")
                lines.append(f"link set {cable} up")
        self._batch(lines)

    def take_out(self, node: Node) -> None:
        """Remove a stopped node's NICs, which its network namespace may not have done yet."""
        self._delete({self._cable(node, nic) for nic in node.nics})

    def set_cable(self, node: Node, nic: Nic, *, connected: bool) -> None:
        """Pull a cable or put it back: the node's end loses or regains its carrier."""
        self._batch([f"link set {self._cable(node, nic)} {'up' if connected else 'down'}"])

    def remove(self) -> None:
        """Remove the instance's links."""
        self._delete({name for name in self._present() if name.startswith(f"{short_id(self.instance)}-")})

    def _delete(self, names: set[str]) -> None:
        for name in sorted(names & self._present()):
            try:
                self._batch([f"link delete {name}"])
            except LabError:
                # the kernel, at work on a namespace that is going, may have been faster
                if name in self._present():
                    raise

    def _bridge(self, fabric: str) -> str:
        return f"{short_id(self.instance)}-{fabric}"

    def _cable(self, node: Node, nic: Nic) -> str:
        return f"{short_id(self.instance)}-{node.index}{nic.fabric}"

    def _present(self) -> set[str]:
        listed = self.outer.inside("ip", "-json", "link", "show", network=self.outer.network)
        return {link["ifname"] for link in json.loads(listed)}

    def _batch(self, lines: Iterable[str], *, network: Path | None = None) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if text:
            self.outer.inside("ip", "-batch", "-", network=network or self.outer.network, stdin=text.encode())
