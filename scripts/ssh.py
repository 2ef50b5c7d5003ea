"""SSH for the operator's commands: the same pins and the same agent as the Pulumi program.

Host keys are pinned on every hop, keys come from the agent, and no configuration of the operator's machine
is read.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import asyncssh

from components.remote import compose
from components.settings import Node
from scripts.errors import CommandError

CONNECT_SECONDS = 10
# user@[host]:port, user@IPv6 or user@host:port
_ADDRESS = re.compile(r"([^@]+)@(?:\[([^@\[\]]+)\]|([^@\[\]]*:[^@\[\]]*:[^@\[\]]*)|([^:@\[\]]+))(?::(\d+))?")


class UnreachableError(CommandError):
    """A node cannot be reached; the message names it, the reason and the remedy."""


@dataclass(frozen=True)
class Address:
    """Where a node's SSH server is: `user@host:port`, with brackets around an IPv6 address and a port."""

    user: str
    host: str
    port: int = 22

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `user@host` or `user@host:port`; an IPv6 address with a port stands in brackets.

        Raises:
            ValueError: if the text has another form.
        """
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not user@host or user@host:port (user@[host]:port for IPv6)")
        user, bracketed, ipv6, host, port = found.groups()
        return cls(user, bracketed or ipv6 or host, int(port or 22))

    def __str__(self) -> str:
        """Write it as the user does."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"


async def host_key(address: Address, tunnel: asyncssh.SSHClientConnection | None = None) -> str:
    """Ask a node for its ed25519 host key, without trusting it.

    Returns:
        One line, `ssh-ed25519 AAAA...`.

    Raises:
        UnreachableError: if nothing answers, or the node has no such key.
    """
    try:
        key = await asyncssh.get_server_host_key(
            address.host,
            address.port,
            tunnel=tunnel or (),
            config=None,
            server_host_key_algs=["ssh-ed25519"],
        )
    except (OSError, asyncssh.Error) as error:
        raise UnreachableError(
            f"{address} does not answer by SSH: {error}. Is it on, and is that its address?"
        ) from None
    if key is None:
        raise UnreachableError(
            f"{address} showed no ed25519 host key; make one there with `sudo ssh-keygen -A`."
        )
    return " ".join(key.export_public_key().decode().split()[:2])


@asynccontextmanager
async def connect(
    address: Address, key: str, tunnel: asyncssh.SSHClientConnection | None = None
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """Connect to a node that must show the given host key.

    Raises:
        UnreachableError: if it cannot be reached, shows another key, or lets no key of the agent in.
    """
    try:
        connection = await asyncssh.connect(
            address.host,
            address.port,
            username=address.user,
            known_hosts=([asyncssh.import_public_key(key)], [], []),
            server_host_key_algs=["ssh-ed25519"],
            tunnel=tunnel or (),
            config=None,
            connect_timeout=CONNECT_SECONDS,
            keepalive_interval=15,
        )
    except asyncssh.HostKeyNotVerifiable:
        raise UnreachableError(
            f"{address} shows another host key than the pinned one. If the node was installed anew, take out "
            "its ssh.hostKey and run discover again; if not, somebody stands in between."
        ) from None
    except asyncssh.PermissionDenied:
        raise UnreachableError(
            f"{address} lets no key of the SSH agent in: `ssh-add` the right one, or `ssh-copy-id` it there."
        ) from None
    except (OSError, asyncssh.Error) as error:
        reason = str(error) or f"no answer within {CONNECT_SECONDS} s"
        raise UnreachableError(f"{address} cannot be reached by SSH: {reason}") from None
    async with connection:
        yield connection


def to(
    node: Node, tunnel: asyncssh.SSHClientConnection | None = None
) -> AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
    """Connect to a node of a stack, by the host key that its file pins.

    Raises:
        UnreachableError: as `connect`, or no key is pinned.
    """
    if node.ssh.host_key is None:
        raise UnreachableError(f"{node.name} has no ssh.hostKey: `spark-vllm discover` reads and pins it.")
    return connect(Address(node.ssh.user, node.ssh.host, node.ssh.port), node.ssh.host_key, tunnel)


async def run(
    connection: asyncssh.SSHClientConnection,
    script: str,
    inputs: Mapping[str, str],
    *,
    libraries: Sequence[str] = (),
) -> str:
    """Run a script of scripts/remote on a node.

    Args:
        connection: to the node.
        script: its file.
        inputs: its variables.
        libraries: files of scripts/remote with functions that it uses.

    Returns:
        Its standard output.

    Raises:
        UnreachableError: if it fails; the message is what the script said.
    """
    result = await connection.run(
        "timeout -k 10 60 bash -s", input=compose(script, inputs, libraries), check=False
    )
    if result.exit_status != 0:
        raise UnreachableError(
            str(result.stderr).strip() or f"{script} ended with status {result.exit_status}"
        )
    return str(result.stdout)


async def stream(
    connection: asyncssh.SSHClientConnection,
    script: str,
    inputs: Mapping[str, str],
    *,
    seconds: int,
    word: Callable[[str], None],
) -> str:
    """Run a script of scripts/remote that takes its time, and hear what it says meanwhile.

    Args:
        connection: to the node.
        script: its file.
        inputs: its variables.
        seconds: after which the node itself ends it.
        word: is told each line of its standard error; a progress bar's states are lines too.

    Returns:
        Its standard output.

    Raises:
        UnreachableError: if it fails; the message ends with what the script said last.
    """
    command = f"timeout -k 10 {seconds} bash -s"
    said: deque[str] = deque(maxlen=8)
    async with connection.create_process(command, errors="replace") as process:
        process.stdin.write(compose(script, inputs))
        process.stdin.write_eof()

        async def listen() -> None:
            rest = ""
            while chunk := await process.stderr.read(4096):
                *lines, rest = re.split(r"[\r\n]", rest + chunk)
                for line in filter(None, lines):
                    said.append(line)
                    word(line)
            if rest:
                said.append(rest)

        printed, _ = await asyncio.gather(process.stdout.read(), listen())
        await process.wait()
    if process.exit_status != 0:
        raise UnreachableError("\n".join(said) or f"{script} ended with status {process.exit_status}")
    return str(printed)
