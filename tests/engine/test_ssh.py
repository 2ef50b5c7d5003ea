"""The stand-in's connections: shared, few, renewed when dead, and with errors that a person can act on."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from lab.engine.command import ssh
from lab.engine.command.ssh import Connection, Pool
from lab.engine.command.values import CommandError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from lab.engine.command.values import Json
    from tests.engine.conftest import Machines, Server


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


class Shell:
    """Runs commands as the plugin does."""

    def __init__(self) -> None:
        self.pool = Pool()
        self.logged: list[str] = []

    async def run(self, connection: Connection, command: str, stdin: str = "") -> dict[str, Json]:
        async def log(line: str) -> None:
            self.logged.append(line)

        return await self.pool.run(
            connection,
            command,
            stdin=stdin,
            environment={},
            optional_environment={},
            logged=frozenset({"stdout"}),
            log=log,
        )


def parse(server: Server, **more: object) -> Connection:
    return Connection.parse(server.connection(perDialTimeout=5, **more))


def failure(work: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(CommandError) as caught:
        asyncio.run(work)
    return str(caught.value)


def test_one_connection_serves_many_commands_at_once(machines: Machines) -> None:
    jump = machines.jump.connection(privateKey=machines.private_key, perDialTimeout=5)
    target = parse(machines.target, privateKey=machines.private_key, proxy=jump)
    before = machines.target.logins(), machines.jump.logins()

    async def work() -> list[Any]:
        shell = Shell()
        return await asyncio.gather(*(shell.run(target, f"sleep 0.1; echo {n}") for n in range(20)))

    assert [result["stdout"] for result in asyncio.run(work())] == [str(n) for n in range(20)]
    assert (machines.target.logins(), machines.jump.logins()) == (before[0] + 1, before[1] + 1)


def test_a_dead_connection_is_renewed_once(machines: Machines) -> None:
    connection = parse(machines.target, privateKey=machines.private_key)

    async def work() -> dict[str, Json]:
        shell = Shell()
        session = (await shell.run(connection, "echo $PPID"))["stdout"]
        os.kill(int(str(session)), signal.SIGKILL)
        return await shell.run(connection, "echo again")

    assert asyncio.run(work())["stdout"] == "again"


def test_a_connection_that_fell_silent_is_left_for_a_new_one(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_TRUSTED_FOR", 0)
    connection = dataclasses.replace(
        parse(machines.target, privateKey=machines.private_key), per_dial_timeout=2
    )

    async def work() -> tuple[dict[str, Json], dict[str, Json]]:
        shell = Shell()
        session = int(str((await shell.run(connection, "echo $PPID"))["stdout"]))
        kept = await shell.run(connection, "echo $PPID")
        os.kill(session, signal.SIGSTOP)
        try:
            return kept, await shell.run(connection, f"echo not {session}")
        finally:
            os.kill(session, signal.SIGKILL)

    kept, new = asyncio.run(work())
    assert new == {"stdout": f"not {kept['stdout']}", "stderr": ""}


def test_a_connection_that_dies_under_a_command_is_an_error(machines: Machines) -> None:
    connection = parse(machines.target, privateKey=machines.private_key)

    assert failure(Shell().run(connection, "echo before; sleep 0.2; kill -9 $PPID; sleep 1")) == (
        'The connection was lost: running "echo before; sleep 0.2; kill -9 $PPID; sleep 1":\nbefore\n'
    )


def test_much_input_and_output_and_a_command_that_reads_nothing(machines: Machines) -> None:
    connection = parse(machines.target, privateKey=machines.private_key)
    text = "ä" * 70_000 + "\n" + "line\n" * 50_000

    async def work() -> tuple[Any, Any, list[str]]:
        shell = Shell()
        echoed = await shell.run(connection, "cat", text)
        return echoed, await shell.run(connection, "true", text), shell.logged

    echoed, ignored, logged = asyncio.run(work())
    assert echoed["stdout"] == text.removesuffix("\n")
    assert ignored == {"stdout": "", "stderr": ""}
    assert logged == text.splitlines()


def test_a_private_key_that_is_none_and_one_that_is_locked(machines: Machines, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "open", "-f", str(locked)], check=True)
    for key in ("no key", locked.read_text()):
        assert f"The privateKey for the target {machines.target.address} cannot be read: " in failure(
            Shell().run(parse(machines.target, privateKey=key), "true")
        )


def test_an_unknown_key_is_refused_with_the_machine_s_name(machines: Machines, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    connection = parse(machines.target, privateKey=(tmp_path / "key").read_text())

    assert failure(Shell().run(connection, "true")) == (
        f"Cannot connect to the target {machines.target.address} (2 attempts): "
        "it accepts none of the keys or passwords that were offered."
    )


def test_a_closed_port_is_tried_again_and_then_named(machines: Machines) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]
    direct = dataclasses.replace(parse(machines.target, privateKey=machines.private_key), port=closed)
    jump = parse(machines.jump, privateKey=machines.private_key)
    shell = Shell()

    assert "(2 attempts): connection refused." in failure(shell.run(direct, "true"))
    assert shell.logged == [f"Dial {direct} 1/1 failed: retrying"]
    behind = failure(Shell().run(dataclasses.replace(direct, proxy=jump, dial_error_limit=0), "true"))
    assert behind.startswith(f"Cannot connect to {direct} (1 attempt): ")
    lost = dataclasses.replace(jump, port=closed, role="proxy", dial_error_limit=0)
    assert failure(Shell().run(dataclasses.replace(direct, proxy=lost), "true")) == (
        f"Cannot connect to {lost} (1 attempt): connection refused."
    )


@pytest.mark.report("M6")
def test_a_silent_server_is_given_up_after_the_time_limit(machines: Machines) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        connection = dataclasses.replace(
            parse(machines.target, privateKey=machines.private_key),
            port=silent.getsockname()[1],
            per_dial_timeout=1,
            dial_error_limit=0,
        )
        start = time.monotonic()
        assert "(1 attempt): no answer in time." in failure(Shell().run(connection, "true"))
        assert time.monotonic() - start < 3
