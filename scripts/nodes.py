"""Connections to all nodes of a stack at once, each by its pinned host key and through its jump."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import asyncssh

from components.settings import Node
from scripts import ssh

Connections = Mapping[str, asyncssh.SSHClientConnection | ssh.UnreachableError]
"""By the node's name: the connection, or why there is none."""


@asynccontextmanager
async def connected(nodes: Sequence[Node]) -> AsyncIterator[Connections]:
    """Connect to nodes side by side, the head before those that are reached through it.

    A node that is out of reach does not hide the others.

    Args:
        nodes: The nodes of a stack, all of them.
    """
    async with AsyncExitStack() as stack:
        links: dict[str, asyncio.Task[asyncssh.SSHClientConnection | ssh.UnreachableError]] = {}

        async def link(node: Node) -> asyncssh.SSHClientConnection | ssh.UnreachableError:
            try:
                bridge = await links[node.ssh.jump] if node.ssh.jump else None
                if isinstance(bridge, ssh.UnreachableError):
                    return ssh.UnreachableError(
                        f"{node.name} is behind {node.ssh.jump}, which is out of reach"
                    )
                return await stack.enter_async_context(ssh.to(node, bridge))
            except ssh.UnreachableError as error:
                return error

        for node in nodes:
            links[node.name] = asyncio.create_task(link(node))
        yield {name: await task for name, task in links.items()}


def reached(
    connections: Connections, fault: Callable[[str], None]
) -> dict[str, asyncssh.SSHClientConnection]:
    """The connections that there are; of the others it is told why not.

    Args:
        connections: To all nodes.
        fault: Is told of each node that is out of reach.
    """
    found = {}
    for name, link in connections.items():
        if isinstance(link, ssh.UnreachableError):
            fault(str(link))
        else:
            found[name] = link
    return found


def must(connections: Connections, name: str) -> asyncssh.SSHClientConnection:
    """The connection to a node without which a command is of no use.

    Raises:
        UnreachableError: There is none.
    """
    found = connections[name]
    if isinstance(found, ssh.UnreachableError):
        raise found
    return found
