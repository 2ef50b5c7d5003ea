"""An engine, and SSH servers, keys and agents of its own."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import subprocess
import time
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pulumi import automation as auto
from pulumi.automation._stack import StackInitMode

from lab.engine.errors import EngineError
from lab.engine.setup import Engine, ensure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PRIVILEGE_SEPARATION = Path("/run/sshd")
"""What sshd wants to find when root starts it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Give an engine, whose variables are set for all that a test starts."""
    try:
        engine = ensure(tmp_path_factory.mktemp("home"))
    except EngineError as error:
        pytest.skip(f"no Pulumi engine is to be had: {error}")
    backend = tmp_path_factory.mktemp("backend")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine.environment().items():
            patch.setenv(name, value)
        patch.setenv("PULUMI_BACKEND_URL", backend.as_uri())
        patch.setenv("PULUMI_CONFIG_PASSPHRASE", "for tests")
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        yield engine


@dataclasses.dataclass(frozen=True)
class Server:
    """An SSH server on this machine."""

    port: int
    host_key: str
    log: Path

    def connection(self, **more: object) -> dict[str, Any]:
        """Give the way to it, as a program writes it."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": getuser(),
            "hostKey": self.host_key,
            "dialErrorLimit": 1,
            **more,
        }

    @property
    def address(self) -> str:
        """Name it as errors do."""
        return f"{getuser()}@127.0.0.1:{self.port}"

    def logins(self) -> int:
        """Count the connections that it has let in."""
        return self.log.read_text().count("Accepted publickey for ")


@dataclasses.dataclass(frozen=True)
class Machines:
    """Two SSH servers and a key that both let in."""

    target: Server
    jump: Server
    key: Path

    @property
    def private_key(self) -> str:
        """Give the key's text."""
        return self.key.read_text()


def make_key(path: Path) -> Path:
    """Make a key pair without a passphrase."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
    return path


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Start a target and a jump host, and end them."""
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if sshd is None:
        pytest.skip("there is no sshd: install openssh-server")
    folder = tmp_path_factory.mktemp("ssh")
    key = make_key(folder / "key")
    made = os.geteuid() == 0 and not _PRIVILEGE_SEPARATION.exists()
    if made:
        _PRIVILEGE_SEPARATION.mkdir()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        servers = {}
        for name in ("target", "jump"):
            servers[name], process = _start_server(sshd, folder / name, key)
            processes.append(process)
        yield Machines(servers["target"], servers["jump"], key)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        if made:
            _PRIVILEGE_SEPARATION.rmdir()


def _start_server(sshd: str, folder: Path, key: Path) -> tuple[Server, subprocess.Popen[bytes]]:
    folder.mkdir()
    host_key = make_key(folder / "host_key")
    shutil.copy(key.with_suffix(".pub"), folder / "authorized_keys")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "config"
    config.write_text(
        "ListenAddress 127.0.0.1\n"
        f"HostKey {host_key}\n"
        f"AuthorizedKeysFile {folder / 'authorized_keys'}\n"
        "StrictModes no\n"
        "UsePAM no\n"
        "PidFile none\n"
        "LogLevel VERBOSE\n"
        "AcceptEnv WELCOME\n"
    )
    log = folder / "log"
    process = subprocess.Popen([sshd, "-D", "-f", str(config), "-p", str(port), "-E", str(log)])
    wait_until(lambda: log.exists() and "Server listening" in log.read_text(), "sshd did not start")
    return Server(port, host_key.with_suffix(".pub").read_text().strip(), log), process


@pytest.fixture(scope="session")
def agent(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start an agent that holds the key, give its socket, and end it."""
    path = tmp_path_factory.mktemp("agent") / "s"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        wait_until(path.exists, "ssh-agent did not start")
        subprocess.run(
            ["ssh-add", "-q", str(machines.key)],
            check=True,
            env=os.environ | {"SSH_AUTH_SOCK": str(path)},
        )
        yield path
    finally:
        process.terminate()
        process.wait()


def wait_until(ready: Callable[[], bool], complaint: str) -> None:
    """Wait for something that takes a moment."""
    end = time.monotonic() + 10
    while not ready():
        assert time.monotonic() < end, complaint
        time.sleep(0.02)


class Failed(Exception):  # noqa: N818 - what a test expects
    """An update has failed; the text is what its user sees."""


class _QuickStack(auto.Stack):
    """A stack that does not start the CLI three times more after each update."""

    def outputs(self) -> auto.OutputMap:
        return {}

    def info(self, show_secrets: bool = True) -> auto.UpdateSummary:
        del show_secrets
        return auto.UpdateSummary(
            kind="update", start_time=datetime.now(UTC), message="", environment={}, config={}, result=""
        )


class Stack:
    """One stack, whose whole program a test gives with each operation."""

    def __init__(self) -> None:
        self._program: Callable[[], None] = lambda: None
        workspace = auto.LocalWorkspace(
            program=self._run, project_settings=auto.ProjectSettings(name="engine", runtime="python")
        )
        self._stack = _QuickStack("test", workspace, StackInitMode.CREATE)

    def up(
        self, program: Callable[[], None], on_event: Callable[[auto.EngineEvent], None] | None = None
    ) -> dict[str, int]:
        """Deploy a program, and give how many resources had which change."""
        return self._do(self._stack.up, program, on_event)

    def preview(self, program: Callable[[], None]) -> dict[str, int]:
        """Preview a program, and give how many resources would have which change."""
        return self._do(self._stack.preview, program, None)

    def refresh(self) -> None:
        """Refresh the state."""
        self._stack.refresh()

    def _run(self) -> None:
        self._program()

    def _do(
        self,
        operation: Callable[..., object],
        program: Callable[[], None],
        on_event: Callable[[auto.EngineEvent], None] | None,
    ) -> dict[str, int]:
        self._program = program
        changes: dict[str, int] = {}

        def watch(event: auto.EngineEvent) -> None:
            if event.summary_event is not None:
                changes.update({str(kind): n for kind, n in event.summary_event.resource_changes.items()})
            if on_event is not None:
                on_event(event)

        try:
            operation(on_event=watch)
        except auto.CommandError as error:
            raise Failed(str(error)) from None
        return changes

    def state(self) -> dict[str, Any]:
        """Give the recorded resources by name."""
        deployment = self._stack.export_stack().deployment or {}
        return {item["urn"].rpartition("::")[2]: item for item in deployment.get("resources", [])}

    def stored(self) -> str:
        """Give all that the backend has stored."""
        backend = Path(os.environ["PULUMI_BACKEND_URL"].removeprefix("file://"))
        return "\n".join(path.read_text() for path in backend.rglob("*.json"))


@pytest.fixture(scope="session")
def stack(engine: Engine) -> Stack:  # noqa: ARG001 - it needs one
    """Give the one stack of all tests: the next one deletes what a test leaves."""
    return Stack()
