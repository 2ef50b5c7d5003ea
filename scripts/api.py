"""The server's API as the head itself reaches it, through the head's SSH connection.

So the API key never crosses a network in clear, and an API that listens on the head's loopback is reached as
well as one that is open to all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncssh
import httpx

from components.commandline import local_url
from scripts.errors import CommandError
from scripts.stack import Stack


class ApiError(CommandError):
    """The server did not answer as it should; the message says what it answered."""


@asynccontextmanager
async def api(
    stack: Stack, head: asyncssh.SSHClientConnection, *, patience: float = 30
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API, with its key.

    Args:
        stack: The stack.
        head: The connection to its head.
        patience: Seconds without a byte after which a request fails.
    """
    url = urlsplit(local_url(stack.settings))
    listener = await head.forward_local_port("127.0.0.1", 0, str(url.hostname), int(url.port or 80))
    key = await asyncio.to_thread(stack.secret, "apiKey")
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{listener.get_port()}",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=patience,
            trust_env=False,
        ) as client:
            yield client
    finally:
        listener.close()


def refusal(response: httpx.Response) -> str:
    """What the server says where it does not answer with 200, in one sentence."""
    try:
        error = response.json().get("error", response.text)
        words = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, AttributeError):
        words = response.text
    return f"HTTP {response.status_code}: {words.strip()[:300] or response.reason_phrase}"
