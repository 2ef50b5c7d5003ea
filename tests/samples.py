"""Configurations that the tests start from."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

from components.settings import Settings, parse

Config = dict[str, Any]


def host_key(seed: str) -> str:
    """A well-formed ed25519 host key of no machine."""
    blob = b"\0\0\0\x0bssh-ed25519\0\0\0 " + seed.encode().ljust(32, b"=")[:32]
    return "ssh-ed25519 " + base64.b64encode(blob).decode()


def node(index: int, name: str | None = None) -> Config:
    """A node with both rails; number 0 is the head."""
    name = name or ("head" if index == 0 else "worker" if index == 1 else f"worker{index}")
    octet = 12 + index
    ssh: Config = {
        "host": f"192.168.200.{octet}",
        "user": "aurora",
        "jump": "head",
        "hostKey": host_key(name),
    }
    if index == 0:
        ssh = {"host": "10.1.230.180", "user": "aurora", "hostKey": host_key(name)}
    return {
        "name": name,
        "ssh": ssh,
        "rails": [
            {
                "interface": "enp1s0f0np0",
                "address": f"192.168.200.{octet}/24",
                "rdmaDevice": "rocep1s0f0",
            },
            {
                "interface": "enP2p1s0f0np0",
                "address": f"192.168.201.{octet}/24",
                "rdmaDevice": "roceP2p1s0f0",
            },
        ],
    }


def config(count: int = 2, **changes: Any) -> Config:  # noqa: ANN401 - JSON
    """A complete configuration; changes replace whole top-level keys."""
    base: Config = {
        "nodes": [node(index) for index in range(count)],
        "image": {"ref": f"registry.invalid/vllm:v1@sha256:{'ab' * 32}"},
        "model": {"directory": "/home/aurora/models/tiny"},
        "vllm": {"servedModelName": "tiny", "args": {"max-model-len": 512}},
    }
    return copy.deepcopy({**base, **changes})


def settings(count: int = 2, **changes: Any) -> Settings:  # noqa: ANN401 - JSON
    """The same as checked settings."""
    return parse(raw(config(count, **changes)))


def raw(configuration: Config) -> dict[str, str]:
    """A configuration as Pulumi hands it to the program."""
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in configuration.items()
    }
