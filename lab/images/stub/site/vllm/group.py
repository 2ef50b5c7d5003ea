"""The other ranks of a server: found through Ray or met over TCP, and watched until one is lost."""

from __future__ import annotations

import importlib
import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from vllm.utils.network_utils import get_ip

if TYPE_CHECKING:
    import argparse

_JOIN_SECONDS = float(os.environ.get("STUB_JOIN_S", "1800"))
_REPORT_SECONDS = 5.0


class RayGroup:
    """One rank on each of the cluster's nodes that have a GPU, the first one here."""

    def __init__(self, world_size: int) -> None:
        """Wait for the nodes.

        Raises:
            ValueError: They did not come.
        """
        self._ray = importlib.import_module("ray")
        self._ray.init(address=os.environ.get("RAY_ADDRESS", "auto"))
        own = f"node:{get_ip()}"
        specs = [{own: 0.001, "GPU": 1.0}, *[{"GPU": 1.0}] * (world_size - 1)]
        began = reported = time.monotonic()
        while not (chosen := _place(self._alive(), own, world_size)):
            now = time.monotonic()
            if now - began > _JOIN_SECONDS:
                raise ValueError(
                    f"Cannot provide a placement group of {specs} within {_JOIN_SECONDS:.0f} seconds. "
                    "See `ray status` and `ray list nodes` to make sure the cluster has enough resources."
                )
            if now - reported > _REPORT_SECONDS:
                reported = now
                print(
                    "Waiting for creating a placement group of specs for "
                    f"{now - began:.0f} seconds. {specs=}. "
                    "Check `ray status` and `ray list nodes` to see if you have enough resources, and make "
                    "sure the IP addresses used by ray cluster are the same as VLLM_HOST_IP environment "
                    "variable specified in each node if you are running on a multi-node.",
                    flush=True,
                )
            time.sleep(0.5)
        self._members = chosen

    def finish_load(self) -> None:
        """The others load nothing."""

    def wait_for_loss(self) -> str:
        """Return when a node of ours is no longer alive, with words."""
        while True:
            time.sleep(0.5)
            try:
                alive = {node["NodeID"] for node in self._alive()}
            except OSError as error:
                return f"the Ray head does not answer: {error}"
            if lost := self._members - alive:
                return f"Ray worker of node {', '.join(sorted(lost))} died unexpectedly, shutting down."

    def _alive(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0) >= 1]


def _place(nodes: list[dict[str, Any]], own: str, world_size: int) -> set[str]:
    here = [node["NodeID"] for node in nodes if own in node["Resources"]]
    others = [node["NodeID"] for node in nodes if own not in node["Resources"]]
    return set([*here[:1], *others][:world_size]) if here and 1 + len(others) >= world_size else set()


class TcpGroup:
    """The ranks of `--nnodes`, each on a node of its own, connected to rank 0."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Meet the others.

        Raises:
            TimeoutError: They did not come.
        """
        address = (args.master_addr, args.master_port)
        self._rank: int = args.node_rank
        self._links = (
            _gather(address, args.nnodes) if args.node_rank == 0 else [_join(address, args.node_rank)]
        )

    def finish_load(self) -> None:
        """Let rank 0 go on when all have loaded; like the real one it waits for ever for one that died."""
        if self._rank:
            self._links[0].sendall(b"+")
        elif not all(link.recv(1) for link in self._links):
            threading.Event().wait()

    def wait_for_loss(self) -> str:
        """Return when a rank is gone, with words."""
        lost = threading.Event()
        for link in self._links:
            threading.Thread(target=_watch, args=(link, lost), daemon=True).start()
        lost.wait()
        return "Worker proc of another node died unexpectedly, shutting down executor."


def _gather(address: tuple[str, int], nodes: int) -> list[socket.socket]:
    links: dict[int, socket.socket] = {}
    with socket.create_server(address) as server:
        server.settimeout(_REPORT_SECONDS)
        end = time.monotonic() + _JOIN_SECONDS
        while len(links) < nodes - 1:
            try:
                link, _ = server.accept()
                links[json.loads(link.makefile("rb", buffering=0).readline())["rank"]] = link
            except TimeoutError:
                print(f"Waiting for the other ranks: {len(links) + 1} of {nodes} joined", flush=True)
            if time.monotonic() > end:
                raise TimeoutError(f"Timed out: {len(links) + 1} of {nodes} ranks joined")
    return list(links.values())


def _join(address: tuple[str, int], rank: int) -> socket.socket:
    end = time.monotonic() + _JOIN_SECONDS
    while True:
        try:
            link = socket.create_connection(address, timeout=3)
            break
        except OSError as error:
            if time.monotonic() > end:
                raise TimeoutError(f"The client socket has timed out: {address}: {error}") from error
            time.sleep(0.5)
    link.settimeout(None)
    link.sendall(json.dumps({"rank": rank}).encode() + b"\n")
    return link


def _watch(link: socket.socket, lost: threading.Event) -> None:
    try:
        while link.recv(1):
            pass
    except OSError:
        pass
    lost.set()


class LocalGroup:
    """All ranks are here."""

    def finish_load(self) -> None:
        """There is nobody to wait for."""

    def wait_for_loss(self) -> str:
        """Never return."""
        threading.Event().wait()
        return ""


Group = RayGroup | TcpGroup | LocalGroup
