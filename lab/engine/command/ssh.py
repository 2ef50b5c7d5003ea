"""SSH for the stand-in: connections that are kept and shared, and commands that report while they run."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import time
from typing import TYPE_CHECKING, Self, cast

import asyncssh

from lab.engine.command.values import CommandError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from lab.engine.command.values import Json

    Log = Callable[[str], Awaitable[None]]

_SESSIONS = 8
"""How many commands run at once on one connection: sshd allows 10 sessions."""

_TRUSTED_FOR = 3.0
"""For how many seconds after its last use a connection counts as alive."""

_RETRY_DELAYS = (0.1, 1.5, 5.0)
"""The first delay between two attempts, its growth and its limit."""


@dataclasses.dataclass(frozen=True)
class Connection:
    """How one machine is reached; the same fields as the official plugin's `connection`."""

    host: str
    user: str
    port: int
    password: str | None = None
    private_key: str | None = None
    private_key_password: str | None = None
    agent_socket: str | None = None
    host_key: str | None = None
    dial_error_limit: int = 10
    per_dial_timeout: int = 15
    proxy: Connection | None = None
    role: str = dataclasses.field(default="target", compare=False)

    @classmethod
    def parse(cls, fields: Json, role: str = "target") -> Self:
        """Read a connection, or its proxy, that the plugin's check has let pass."""
        if not isinstance(fields, dict):
            raise CommandError(
                f"The connection to the {role} is {fields!r}; an object with a host is needed."
            )

        def text(key: str) -> str | None:
            value = fields.get(key)
            return None if value is None else str(value)

        def number(key: str) -> int:
            return int(str(text(key)).partition(".")[0])

        proxy = fields.get("proxy")
        return cls(
            host=str(text("host")),
            user=str(text("user")),
            port=number("port"),
            password=text("password"),
            private_key=text("privateKey"),
            private_key_password=text("privateKeyPassword"),
            agent_socket=text("agentSocketPath") or os.environ.get("SSH_AUTH_SOCK") or None,
            host_key=text("hostKey"),
            dial_error_limit=number("dialErrorLimit"),
            per_dial_timeout=number("perDialTimeout"),
            proxy=None if proxy is None else cls.parse(proxy, "proxy"),
            role=role,
        )

    def __str__(self) -> str:
        """Name the machine as errors do."""
        return f"the {self.role} {self.user}@{self.host}:{self.port}"


@dataclasses.dataclass
class _Link:
    """One kept connection."""

    client: asyncssh.SSHClientConnection | None = None
    seen: float = 0
    dialling: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    sessions: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(_SESSIONS))


class Pool:
    """The connections of this process, one for each distinct way to reach a machine."""

    def __init__(self) -> None:
        """Start without connections."""
        self._links: dict[Connection, _Link] = {}

    async def run(  # noqa: PLR0913 - one call, all that a command is
        self,
        connection: Connection,
        command: str,
        *,
        stdin: str,
        environment: Mapping[str, Json],
        optional_environment: Mapping[str, str],
        logged: frozenset[str],
        log: Log,
    ) -> dict[str, Json]:
        """Run a command on a machine.

        Args:
            connection: How the machine is reached.
            command: What its login shell runs.
            stdin: What the command reads.
            environment: Variables that the server must accept.
            optional_environment: Variables that it may refuse.
            logged: Which of stdout and stderr are reported while the command runs.
            log: Where their lines go.

        Returns:
            What the command printed on stdout and stderr.

        Raises:
            CommandError: If the machine is not reached, or the command fails.
        """
        link = self._links.setdefault(connection, _Link())
        required = {name: str(value) for name, value in environment.items()}
        async with link.sessions:
            if required:
                await self._check_accepted(link, connection, required, log)
            session = await self._start(link, connection, command, {**optional_environment, **required}, log)
            session.send(stdin)
            async for stream, line in session.lines():
                if stream in logged:
                    await log(line)
        if session.failure is not None:
            raise CommandError(
                f"{session.failure}: running {json.dumps(command, ensure_ascii=False)}:\n{session.text()}"
            )
        return {stream: session.text(stream).removesuffix("\n") for stream in ("stdout", "stderr")}

    async def _check_accepted(
        self, link: _Link, connection: Connection, environment: Mapping[str, str], log: Log
    ) -> None:
        """Refuse variables that the server drops, which it does without a word."""
        probe = await self._start(link, connection, "env", environment, log)
        probe.send("")
        async for _ in probe.lines():
            pass
        seen = probe.text("stdout")
        for name, value in environment.items():
            if f"{name}={value}" not in seen:
                raise CommandError(
                    f"Unable to set {name!r} on {connection}: its SSH server accepts only variables that "
                    "AcceptEnv names. Allow it there, or put 'VAR=value' before the command."
                )

    async def _start(
        self, link: _Link, connection: Connection, command: str, environment: Mapping[str, str], log: Log
    ) -> _Session:
        """Start a command, on a new connection if the kept one turns out to be dead."""
        kept = link.client
        while True:
            client = await self._connect(link, connection, log)
            try:
                _, session = await client.create_session(
                    _Session, command, env=list(environment.items()), encoding="utf-8", errors="replace"
                )
            except (OSError, asyncssh.Error) as error:
                if client is not kept:
                    raise CommandError(
                        f"{_capital(connection)} took the connection but no command: {_reason(error)}."
                    ) from None
                kept = None
                if link.client is client:
                    link.client = None
            else:
                return cast("_Session", session)

    async def _connect(self, link: _Link, connection: Connection, log: Log) -> asyncssh.SSHClientConnection:
        """Give the kept connection, or a new one where there is none or it is dead."""
        async with link.dialling:
            if link.client is None or not await self._is_alive(link, link.client, connection):
                link.client = await self._dial(connection, log)
            link.seen = time.monotonic()
            return link.client

    @staticmethod
    async def _is_alive(link: _Link, client: asyncssh.SSHClientConnection, connection: Connection) -> bool:
        """Ask a connection that was idle for a while whether it still answers.

        One that does not is not ended here, since other commands may still run on it.
        """
        if client.is_closed() or time.monotonic() - link.seen < _TRUSTED_FOR:
            return not client.is_closed()
        try:
            await asyncio.wait_for(client.run("true"), connection.per_dial_timeout or None)
        except (OSError, asyncssh.Error, TimeoutError):
            return False
        return True

    async def _dial(self, connection: Connection, log: Log) -> asyncssh.SSHClientConnection:
        """Connect, trying again as often as the connection allows."""
        limit, attempt, delay = connection.dial_error_limit, 0, _RETRY_DELAYS[0]
        while True:
            try:
                return await self._dial_once(connection, log)
            except asyncssh.HostKeyNotVerifiable:
                raise CommandError(
                    f"{_capital(connection)} did not show the host key that its connection pins with "
                    "hostKey. If the machine was installed anew, pin its new key; if not, another answers."
                ) from None
            except (OSError, asyncssh.Error, TimeoutError) as error:
                attempt += 1
                if 0 <= limit < attempt:
                    tries = "1 attempt" if attempt == 1 else f"{attempt} attempts"
                    raise CommandError(
                        f"Cannot connect to {connection} ({tries}): {_reason(error)}."
                    ) from None
            await log(f"Dial {connection} {attempt}/{limit if limit >= 0 else 'inf'} failed: retrying")
            await asyncio.sleep(delay)
            delay = min(delay * _RETRY_DELAYS[1], _RETRY_DELAYS[2])

    async def _dial_once(self, connection: Connection, log: Log) -> asyncssh.SSHClientConnection:
        tunnel = None
        if connection.proxy is not None:
            link = self._links.setdefault(connection.proxy, _Link())
            tunnel = await self._connect(link, connection.proxy, log)
        async with _keys(connection) as keys:
            return await asyncssh.connect(
                connection.host,
                connection.port,
                username=connection.user,
                password=connection.password,
                client_keys=keys or None,
                known_hosts=_known_hosts(connection),
                tunnel=tunnel or (),
                config=None,
                agent_path=None,
                gss_host=None,
                connect_timeout=connection.per_dial_timeout or None,
            )


class _Session(asyncssh.SSHClientSession[str]):
    """A running command: what it prints, line by line and whole."""

    def __init__(self) -> None:
        self.failure: str | None = "The connection was lost"
        self._chunks: list[tuple[str, str]] = []
        self._partial = {"stdout": "", "stderr": ""}
        self._lines: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()

    def connection_made(self, chan: asyncssh.SSHClientChannel[str]) -> None:
        self._channel = chan

    def data_received(self, data: str, datatype: int | None) -> None:
        stream = "stderr" if datatype == asyncssh.EXTENDED_DATA_STDERR else "stdout"
        self._chunks.append((stream, data))
        *lines, self._partial[stream] = (self._partial[stream] + data).split("\n")
        for line in lines:
            self._lines.put_nowait((stream, line))

    def exit_status_received(self, status: int) -> None:
        self.failure = None if status == 0 else f"Process exited with status {status}"

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:  # noqa: ARG002
        self.failure = f"Process exited with signal {signal}"

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for stream, rest in self._partial.items():
            if rest:
                self._lines.put_nowait((stream, rest))
        self._lines.put_nowait(None)

    def send(self, text: str) -> None:
        """Give the command its whole standard input."""
        with contextlib.suppress(BrokenPipeError):  # it may have ended without reading
            self._channel.write(text)
            self._channel.write_eof()

    async def lines(self) -> AsyncIterator[tuple[str, str]]:
        """Give each line with its stream, as it comes, until the command has ended."""
        while (item := await self._lines.get()) is not None:
            yield item

    def text(self, stream: str | None = None) -> str:
        """Give all that was printed, on one stream or on both in order."""
        return "".join(chunk for name, chunk in self._chunks if stream in (None, name))


@contextlib.asynccontextmanager
async def _keys(connection: Connection) -> AsyncIterator[list[asyncssh.SSHKeyPair | asyncssh.SSHKey]]:
    """Give the keys to authenticate with: the connection's own, then the agent's."""
    keys: list[asyncssh.SSHKeyPair | asyncssh.SSHKey] = []
    if connection.private_key is not None:
        try:
            keys.append(asyncssh.import_private_key(connection.private_key, connection.private_key_password))
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            raise CommandError(f"The privateKey for {connection} cannot be read: {_reason(error)}.") from None
    if connection.agent_socket is None:
        if not keys and connection.password is None:
            raise CommandError(
                f"There is no SSH agent for {connection}: SSH_AUTH_SOCK is not set, and its connection has "
                "neither privateKey nor password. Start an agent and add your key with ssh-add."
            )
        yield keys
        return
    try:
        agent = await asyncssh.connect_agent(connection.agent_socket)
    except (OSError, asyncssh.Error):
        agent = None
    if agent is None:
        raise CommandError(
            f"No SSH agent answers at {connection.agent_socket}, which {connection} needs. "
            "Start one and let SSH_AUTH_SOCK name its socket."
        )
    async with agent:
        yield [*keys, *await agent.get_keys()]


def _known_hosts(
    connection: Connection,
) -> tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]] | None:
    """Give the pinned host key; the official plugin verifies nothing where none is pinned."""
    if connection.host_key is None:
        return None
    try:
        return [asyncssh.import_public_key(connection.host_key)], [], []
    except asyncssh.KeyImportError:
        raise CommandError(
            f"The hostKey of {connection} is no public key. Give one line such as 'ssh-ed25519 AAAA...'."
        ) from None


def _capital(connection: Connection) -> str:
    text = str(connection)
    return text[0].upper() + text[1:]


def _reason(error: Exception) -> str:
    """Say in few words what went wrong."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, asyncssh.PermissionDenied):
        return "it accepts none of the keys or passwords that were offered"
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return os.strerror(error.errno).lower() if error.errno > 0 else error.strerror
    return str(error).rstrip(".") or type(error).__name__
