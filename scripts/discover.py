"""`discover`: look at the nodes, pin their host keys, and write what was found into the stack file."""

from __future__ import annotations

import asyncio
import difflib
import io
import ipaddress
import secrets
from pathlib import Path
from typing import Annotated, Any

import asyncssh
import typer
from rich.console import Console
from rich.syntax import Syntax
from ruamel.yaml import YAML

from components.settings import PROJECT
from scripts import ssh
from scripts.console import err
from scripts.pulumi import ROOT, PulumiError, pulumi
from scripts.stack import DEFAULT, ConfigFile, StackName

Node = dict[str, Any]


def discover(  # noqa: PLR0913 - a command's options
    head: Annotated[str, typer.Option(help="The head, as user@host or user@host:port.")],
    worker: Annotated[
        list[str] | None, typer.Option(help="A worker behind the head, as user@host; repeat it.")
    ] = None,
    stack: StackName = DEFAULT,
    config_file: ConfigFile = None,
    sysfs: Annotated[str, typer.Option(help="Where RDMA devices are read on the nodes.")] = "/sys",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A further value, as key.path=YAML, for example vllm.port=8000."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Pin the host keys shown and write without asking.")
    ] = False,
) -> None:
    """Find interfaces, addresses and host keys of the nodes, and write the stack file."""
    console = err()
    path = config_file or ROOT / f"Pulumi.{stack}.yaml"
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 10_000
    old = path.read_text(encoding="utf-8") if path.exists() else "config: {}\n"
    document = yaml.load(old)
    config = document.setdefault("config", {})
    try:
        addresses = [ssh.Address.parse(each) for each in (head, *(worker or []))]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    known = {node["name"]: node for node in config.get(f"{PROJECT}:nodes") or []}
    found = asyncio.run(_look(addresses, known, sysfs, console, yes=yes))
    _merge(config, found, sysfs, set_ or [], yaml)
    written = io.StringIO()
    yaml.dump(document, written)
    _write(path, old, written.getvalue(), console, yes=yes)
    for key in ("apiKey", "rayToken"):
        if f"{PROJECT}:{key}" not in config:
            _make_secret(stack, path, key, console)


async def _look(
    addresses: list[ssh.Address], known: dict[str, Node], sysfs: str, console: Console, *, yes: bool
) -> list[Node]:
    head = addresses[0]
    nodes = []
    pinned = {name: node["ssh"]["hostKey"] for name, node in known.items() if node["ssh"].get("hostKey")}
    key = pinned.get("head") or await _confirm(head, None, console, yes=yes)
    async with ssh.connect(head, key) as bridge:
        facts = await ssh.run(bridge, "facts.sh", {"SYSFS": sysfs})
        nodes.append(_node("head", head, key, facts, _intended(known.get("head"))))
        for number, address in enumerate(addresses[1:], start=1):
            name = "worker" if number == 1 else f"worker{number}"
            key = pinned.get(name) or await _confirm(address, bridge, console, yes=yes)
            async with ssh.connect(address, key, bridge) as connection:
                facts = await ssh.run(connection, "facts.sh", {"SYSFS": sysfs})
            intended = _beside(nodes[0], number) | _intended(known.get(name))
            nodes.append(_node(name, address, key, facts, intended))
    return nodes


def _intended(node: Node | None) -> dict[str, str]:
    """What the stack file says, address by interface."""
    return {rail["interface"]: str(rail["address"]) for rail in (node or {}).get("rails") or []}


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


def _node(name: str, address: ssh.Address, key: str, facts: str, intended: dict[str, str]) -> Node:
    where: Node = {"host": address.host, "user": address.user, "hostKey": key}
    if address.port != 22:  # noqa: PLR2004 - SSH's own port
        where["port"] = address.port
    if name != "head":
        where["jump"] = "head"
    rails = []
    for line in facts.splitlines():
        kind, _, rest = line.partition("=")
        if kind == "rail":
            interface, found, device, _ = rest.split()
            wanted = intended.get(interface) if found == "none" else found
            if wanted:
                rails.append({"interface": interface, "address": wanted, "rdmaDevice": device})
    # enp1s0f0np0 before its twin enP2p1s0f0np0, on every node alike.
    rails.sort(key=lambda rail: rail["interface"].casefold())
    return {"name": name, "ssh": where, "rails": rails}


def _merge(config: dict[str, Any], found: list[Node], sysfs: str, extra: list[str], yaml: YAML) -> None:
    known = {node["name"]: node for node in config.get(f"{PROJECT}:nodes") or []}
    nodes = []
    for node in found:
        entry = known.get(node["name"], {})
        entry.update(node)
        nodes.append(entry)
    config[f"{PROJECT}:nodes"] = nodes
    config.setdefault("pulumi:disable-default-providers", ["docker"])
    if sysfs != "/sys":
        config.setdefault(f"{PROJECT}:network", {})["sysfs"] = sysfs
    for setting in extra:
        keys, _, text = setting.partition("=")
        section, *path = keys.split(".")
        target = config.setdefault(f"{PROJECT}:{section}", {})
        for part in path[:-1]:
            target = target.setdefault(part, {})
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
