"""`discover`: look at the nodes, pin what can be pinned, and write what was found into the stack file."""

from __future__ import annotations

import asyncio
import difflib
import io
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import asyncssh
import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from ruamel.yaml import YAML

from components.remote import pairs
from components.settings import PROJECT
from scripts import ssh
from scripts.console import err
from scripts.pins import Secret, pins
from scripts.pulumi import ROOT, PulumiError, pulumi
from scripts.stack import DEFAULT, ConfigFile, StackName, secret
from scripts.units import GB, GIB, KIB

Node = dict[str, Any]
SSH_PORT = 22


@dataclass
class Facts:
    """What facts.sh says of a node: `rails` and `neighbours` as it prints them, all else by key."""

    values: dict[str, str] = field(default_factory=dict)
    rails: list[list[str]] = field(default_factory=list)
    neighbours: list[list[str]] = field(default_factory=list)

    @classmethod
    def read(cls, out: str) -> Facts:
        """Read its standard output."""
        found = cls()
        for key, value in pairs(out):
            if key == "rail":
                found.rails.append(value.split())
            elif key == "neighbour":
                found.neighbours.append(value.split())
            else:
                found.values[key] = value
        # enp1s0f0np0 before its twin enP2p1s0f0np0, on every node alike
        for each in (found.rails, found.neighbours):
            each.sort(key=lambda rail: rail[0].casefold())
        return found


def discover(  # noqa: PLR0913 - a command's options
    head: Annotated[
        str | None,
        typer.Option(help="The head, as user@host or user@host:port; without it, the stack file's nodes."),
    ] = None,
    worker: Annotated[
        list[str] | None, typer.Option(help="A worker behind the head, as user@host; repeat it.")
    ] = None,
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    pin: Annotated[
        bool, typer.Option("--pin", help="Also write the image's digest and the model's commit.")
    ] = False,
    sysfs: Annotated[str, typer.Option(help="Where RDMA devices are read on the nodes.")] = "/sys",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A further value, as key.path=YAML, for example vllm.port=8000."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Pin the host keys shown and write without asking.")
    ] = False,
) -> None:
    """Find interfaces, addresses and host keys of the nodes, and write the stack file.

    What a person wrote into it stays, with the comments, and the difference is shown before it is written.
    The API key and the Ray token are made where there are none. On the nodes nothing is changed.
    """
    console = err()
    path = config_file or ROOT / f"Pulumi.{stack}.yaml"
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 10_000
    old = path.read_text(encoding="utf-8") if path.exists() else "config: {}\n"
    document = yaml.load(old)
    config = document.setdefault("config", {})
    for setting in set_ or []:
        _set(config, setting, yaml)
    if sysfs != "/sys":
        config.setdefault(f"{PROJECT}:network", {})["sysfs"] = sysfs
    known: list[Node] = config.get(f"{PROJECT}:nodes") or []
    addresses = _addresses(head, worker or [], known, path.name)
    asyncio.run(_fill(config, addresses, partial(secret, stack, path) if pin else None, console, yes=yes))
    written = io.StringIO()
    yaml.dump(document, written)
    _write(path, old, written.getvalue(), console, yes=yes)
    for key in ("apiKey", "rayToken"):
        if f"{PROJECT}:{key}" not in config:
            _make_secret(stack, path, key, console)


def _addresses(head: str | None, workers: list[str], known: Sequence[Node], file: str) -> list[ssh.Address]:
    """Of all nodes, the head first: as they are given, or as the stack file has them."""
    if head is None and (workers or not known):
        raise typer.BadParameter(f"--head is needed{'' if workers else f': {file} names no nodes yet'}")
    if head is None:
        found = [node["ssh"] for node in known]
        return [ssh.Address(each["user"], each["host"], each.get("port", SSH_PORT)) for each in found]
    try:
        return [ssh.Address.parse(each) for each in (head, *workers)]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


async def _fill(
    config: dict[str, Any],
    addresses: Sequence[ssh.Address],
    opens: Secret | None,
    console: Console,
    *,
    yes: bool,
) -> None:
    """Look at the nodes, and put what is found into the configuration; `opens` where pins are wanted too."""
    known: list[Node] = config.get(f"{PROJECT}:nodes") or []
    sysfs = config.get(f"{PROJECT}:network", {}).get("sysfs", "/sys")
    key = _pinned(known, 0) or await _confirm(addresses[0], None, console, yes=yes)
    async with ssh.connect(addresses[0], key) as bridge:
        alone = len(addresses) == 1
        facts = [await _look(bridge, sysfs, neighbours=alone)]
        nodes = [_node(_name(known, 0), addresses[0], key, facts[0], _intended(known, 0))]
        for number, address in enumerate(addresses[1:], start=1):
            key = _pinned(known, number) or await _confirm(address, bridge, console, yes=yes)
            async with ssh.connect(address, key, bridge) as link:
                facts.append(await _look(link, sysfs))
            intended = _beside(nodes[0], number) | _intended(known, number)
            jump = str(nodes[0]["name"])
            nodes.append(_node(_name(known, number), address, key, facts[-1], intended, jump))
        pinned = await pins(bridge, config, opens) if opens else {}
    console.print(_table([node["name"] for node in nodes], facts))
    _say_what_is_missing(nodes, facts, addresses[0].user, console)
    _merge(config, nodes)
    for (section, name), value in pinned.items():
        config[section][name] = value
    if opens and not pinned:
        console.print("Image and model are pinned already.")


async def _look(link: asyncssh.SSHClientConnection, sysfs: str, *, neighbours: bool = False) -> Facts:
    inputs = {"SYSFS": sysfs, "NEIGHBOURS": "yes" if neighbours else "no"}
    return Facts.read(await ssh.run(link, "facts.sh", inputs, libraries=["machine.sh"]))


def _name(known: Sequence[Node], number: int) -> str:
    if number < len(known):
        return str(known[number]["name"])
    return ("head", "worker")[number] if number < 2 else f"worker{number}"  # noqa: PLR2004 - one has no number


def _pinned(known: Sequence[Node], number: int) -> str | None:
    return known[number]["ssh"].get("hostKey") if number < len(known) else None


def _intended(known: Sequence[Node], number: int) -> dict[str, str]:
    """What the stack file says, address by interface."""
    rails = (known[number].get("rails") if number < len(known) else None) or []
    return {rail["interface"]: str(rail["address"]) for rail in rails}


def _beside(head: Node, number: int) -> dict[str, str]:
    """Addresses for a worker without any: the head's own, so many further."""
    rails = {rail["interface"]: ipaddress.ip_interface(rail["address"]) for rail in head["rails"]}
    return {name: f"{own.ip + number}/{own.network.prefixlen}" for name, own in rails.items()}


async def _confirm(
    address: ssh.Address, tunnel: asyncssh.SSHClientConnection | None, console: Console, *, yes: bool
) -> str:
    key = await ssh.host_key(address, tunnel)
    fingerprint = asyncssh.import_public_key(key).get_fingerprint()
    console.print(f"{address} shows the host key {fingerprint}", highlight=False)
    if not yes:
        typer.confirm(
            "Is that the node's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub)?", abort=True
        )
    return key


def _node(  # noqa: PLR0913 - all that a node is made of
    name: str, address: ssh.Address, key: str, facts: Facts, intended: Mapping[str, str], jump: str = ""
) -> Node:
    where: Node = {"host": address.host, "user": address.user, "hostKey": key}
    if address.port != SSH_PORT:
        where["port"] = address.port
    if jump:
        where["jump"] = jump
    rails = []
    for interface, found, device, *_ in facts.rails:
        wanted = intended.get(interface) if found == "none" else found
        if wanted:
            rails.append({"interface": interface, "address": wanted, "rdmaDevice": device})
    return {"name": name, "ssh": where, "rails": rails}


def _table(names: Sequence[str], facts: Sequence[Facts]) -> Table:
    """What the nodes are, a column for each."""
    table = Table("", *names, box=None, pad_edge=False)
    of = [each.values for each in facts]
    rows = {
        "host": [f"{each['hostname']}, {each['arch']}, kernel {each['kernel']}" for each in of],
        "GPU": [f"{each['gpu']}, driver {each['driver']}" if each["gpu"] else "none" for each in of],
        "memory": [f"{int(each['memory_kib']) * KIB / GIB:.0f} GiB" for each in of],
        "disk": [f"{int(each['disk']) / GB:.0f} GB free" for each in of],
        "Docker": [
            f"{each['docker']}, store {each['image_store']}, NVIDIA runtime {each['runtime']}"
            if "image_store" in each
            else "out of reach for this user"
            for each in of
        ],
        "rails": ["\n".join(_rail(*rail) for rail in each.rails) or "none with a cable" for each in facts],
    }
    for title, cells in rows.items():
        table.add_row(title, *cells)
    return table


def _rail(interface: str, address: str, device: str, mtu: str, speed: str) -> str:
    where = "no address" if address == "none" else address
    return f"{interface}  {where}  MTU {mtu}  {device}{'' if speed == '?' else f'  {speed} Gb/s'}"


def _say_what_is_missing(nodes: Sequence[Node], facts: Sequence[Facts], user: str, console: Console) -> None:
    """Who else is on the cable where no worker was named, and nodes that can have no rail."""
    for node, each in zip(nodes, facts, strict=True):
        if each.rails and not node["rails"]:
            console.print(
                f"{node['name']}: its rails have no address, and the file gives them none; write them into "
                "nodes[].rails (docs/network.md), and `up` sets them."
            )
    heard = facts[0].neighbours
    if len(nodes) == 1 and heard:
        interface, address = heard[0]
        console.print(
            f"Somebody answers on {', '.join(f'{name} ({there})' for name, there in heard)}. If that is the "
            f"worker, run this again with --worker {user}@{address}%{interface}: it needs no address yet."
        )
    elif len(nodes) == 1 and facts[0].rails:
        console.print("Nobody else answers on the head's rails: this is a stack of one Spark.")


def _merge(config: dict[str, Any], found: Sequence[Node]) -> None:
    known = {node["name"]: node for node in config.get(f"{PROJECT}:nodes") or []}
    nodes = []
    for node in found:
        entry = known.get(node["name"], {})
        entry.update(node)
        nodes.append(entry)
    config[f"{PROJECT}:nodes"] = nodes
    config.setdefault("pulumi:disable-default-providers", ["docker"])


def _set(config: dict[str, Any], setting: str, yaml: YAML) -> None:
    """Put a `key.path=YAML` into the configuration."""
    keys, given, text = setting.partition("=")
    section, *path = keys.split(".")
    target = config.setdefault(f"{PROJECT}:{section}", {})
    for part in path[:-1]:
        target = target.setdefault(part, {}) if isinstance(target, dict) else None
    if not given or not path or not isinstance(target, dict):
        raise typer.BadParameter(f"--set {setting}: is not section.key=YAML")
    target[path[-1]] = yaml.load(text)


def _write(path: Path, old: str, new: str, console: Console, *, yes: bool) -> None:
    if new == old:
        console.print(f"{path.name}: nothing to change")
        return
    diff = "".join(
        difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), path.name, path.name
        )
    )
    console.print(Syntax(diff, "diff", background_color="default"))
    if not yes:
        typer.confirm(f"Write {path.name}?", abort=True)
    path.write_text(new, encoding="utf-8")


def _make_secret(stack: str, path: Path, key: str, console: Console) -> None:
    options = ("--stack", stack, "--config-file", str(path))
    try:
        pulumi("config", "set", "--secret", *options, f"{PROJECT}:{key}", stdin=secrets.token_hex(24))
    except PulumiError as error:
        raise PulumiError(f"{key} was not set: {error}") from None
    console.print(f"{key}: made, and set as a secret of stack {stack}")
