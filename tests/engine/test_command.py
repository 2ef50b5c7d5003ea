"""The command plugin does what the design counts on, be it the official one or its stand-in.

Each test is a row of the plugin's table of behaviour, on the real engine and a real SSH server.
"""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulumi
import pulumi_command as command
import pytest

from lab.engine.setup import Engine, Kind
from tests.engine.conftest import Failed, Machines, Stack, make_key, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pulumi import automation as auto

pytestmark = [
    pytest.mark.filterwarnings("ignore:This resource is deprecated"),
    # what the SDK leaves behind of a program whose update has failed
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_UNCHANGED = {"same": 2}


class Row:
    """One Command, that writes into a journal what it was asked to do."""

    def __init__(self, stack: Stack, machines: Machines, folder: Path) -> None:
        self.stack = stack
        self.name = folder.name.replace("_", "-")
        self.connection = machines.target.connection(privateKey=machines.private_key)
        self.seen: list[str] = []
        self._file = folder / "journal"

    def note(self, word: str) -> str:
        """Give a command that notes a word and its standard input."""
        return f"(echo {word}; cat) | paste -sd' ' >> {self._file}"

    def journal(self) -> list[str]:
        """Give what was noted since the last look."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self._file.unlink(missing_ok=True)
        return [line.strip() for line in lines]

    def program(self, inputs: Mapping[str, Any]) -> Callable[[], None]:
        """Give a program with this Command; it keeps what it sees of stdout."""

        def run() -> None:
            self.seen = []
            resource = command.remote.Command(
                self.name, **{"connection": self.connection, "add_previous_output_in_env": False, **inputs}
            )
            resource.stdout.apply(self.seen.append)

        return run

    def up(self, **inputs: Any) -> dict[str, int]:  # noqa: ANN401 - a resource's inputs
        return self.stack.up(self.program(inputs))

    def fail(self, **inputs: Any) -> str:  # noqa: ANN401 - a resource's inputs
        """Expect a failed update, and give what its user sees."""
        with pytest.raises(Failed) as caught:
            self.up(**inputs)
        assert "Traceback" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def row(stack: Stack, machines: Machines, tmp_path: Path) -> Iterator[Row]:
    yield Row(stack, machines, tmp_path)
    gc.collect()  # here, where its complaints about interrupted programs are ignored


@pytest.fixture
def stand_in(engine: Engine) -> bool:
    """Tell whether errors have the stand-in's words."""
    return engine.command is Kind.STAND_IN


def test_create_update_and_delete_get_stdin_and_an_unchanged_command_does_nothing(row: Row) -> None:
    inputs = {"create": row.note("create") + "; printf 'one\\ntwo\\n'", "update": row.note("update")}
    row.up(**inputs, stdin="first", delete=row.note("delete"))
    assert (row.journal(), row.seen) == (["create first"], ["one\ntwo"])

    assert row.up(**inputs, stdin="first", delete=row.note("delete")) == _UNCHANGED
    assert (row.journal(), row.seen) == ([], ["one\ntwo"])

    assert row.up(**inputs, stdin="second", delete=row.note("delete")) == {"update": 1, "same": 1}
    assert (row.journal(), row.seen) == (["update second"], [""])

    row.stack.up(lambda: None)
    assert row.journal() == ["delete second"]


def test_without_update_the_new_create_runs(row: Row) -> None:
    row.up(create=row.note("old"), stdin="x")
    assert row.up(create=row.note("new"), stdin="y") == {"update": 1, "same": 1}
    assert row.journal() == ["old x", "new y"]


def test_changed_triggers_replace_create_first_and_delete_the_old_over_its_old_connection(
    row: Row, machines: Machines
) -> None:
    jump = machines.jump.connection(privateKey=machines.private_key)
    port = "${SSH_CONNECTION##* }"
    row.up(create=row.note("create"), delete=row.note(f"delete {port}"), stdin="old", triggers=["a"])
    assert row.up(
        connection=jump,
        create=row.note(f"create {port}"),
        update=row.note("update"),
        delete=row.note("new-delete"),
        stdin="new",
        triggers=["b"],
    ) == {"replace": 1, "same": 1}
    assert row.journal() == [
        "create old",
        f"create {machines.jump.port} new",
        f"delete {machines.target.port} old",
    ]


def test_a_changed_connection_runs_update_over_the_new_one(row: Row, machines: Machines) -> None:
    inputs = {"create": row.note("create"), "update": row.note("update ${SSH_CONNECTION##* }")}
    row.up(**inputs)
    jump = machines.jump.connection(privateKey=machines.private_key)
    assert row.up(**inputs, connection=jump) == {"update": 1, "same": 1}
    assert row.journal() == ["create", f"update {machines.jump.port}"]


def test_a_failed_create_records_nothing_and_tells_everything(row: Row) -> None:
    text = "echo out; echo err >&2; exit 3"
    error = row.fail(create=text, delete=row.note("delete"))
    assert "Process exited with status 3" in error
    assert f'running "{text}"' in error
    assert {"out", "err"} <= set(map(str.strip, error.splitlines()))
    assert row.name not in row.stack.state()

    assert row.up(create="true", delete=row.note("delete"))["create"] == 1
    assert row.journal() == []


def test_a_failed_update_keeps_the_old_state_and_is_tried_again(row: Row) -> None:
    row.up(create=row.note("create"), stdin="old")
    row.fail(create=row.note("create"), update="exit 1", stdin="new")
    assert row.stack.state()[row.name]["inputs"]["stdin"] == "old"
    row.up(create=row.note("create"), update=row.note("update"), stdin="new")
    assert row.journal() == ["create old", "update new"]


def test_stdout_is_unknown_in_previews_of_create_and_update_only(row: Row) -> None:
    inputs = {"create": "echo printed", "stdin": "a"}
    row.stack.preview(row.program(inputs))
    assert row.seen == []
    row.up(**inputs)
    row.stack.preview(row.program({**inputs, "stdin": "b"}))
    assert row.seen == []
    row.stack.preview(row.program(inputs))
    assert row.seen == ["printed"]


def test_refresh_runs_nothing_and_changes_nothing(row: Row) -> None:
    inputs = {"create": row.note("create") + "; echo printed", "update": row.note("update"), "stdin": "in"}
    row.up(**inputs)
    before = row.stack.state()[row.name]
    row.stack.refresh()
    after = row.stack.state()[row.name]
    assert (after["inputs"].keys(), after["outputs"]["stdout"]) == (before["inputs"].keys(), "printed")
    assert row.up(**inputs) == _UNCHANGED
    assert row.journal() == ["create in"]


@pytest.mark.parametrize(
    ("logging", "shown"),
    [
        (None, {"to-out", "to-err"}),
        ("stdout", {"to-out"}),
        ("stderr", {"to-err"}),
        ("none", set()),
    ],
)
def test_lines_are_shown_while_the_command_runs(
    row: Row, tmp_path: Path, logging: str | None, shown: set[str]
) -> None:
    ended = tmp_path / "ended"
    in_time = set()

    def watch(event: auto.EngineEvent) -> None:
        if (diagnostic := event.diagnostic_event) is not None and not ended.exists():
            in_time.update(diagnostic.message.split())

    text = f"echo to-out; echo to-err >&2; sleep {1 if shown else 0}; touch {ended}"
    row.stack.up(row.program({"create": text, "logging": logging}), on_event=watch)
    assert {"to-out", "to-err"} & in_time == shown


def test_environment_needs_accept_env(row: Row) -> None:
    inputs = {"create": row.note("$WELCOME$FOREIGN")}
    row.up(**inputs, environment={"WELCOME": "guest"})
    assert row.journal() == ["guest"]
    error = row.fail(**inputs, environment={"WELCOME": "guest", "FOREIGN": "x"})
    assert "FOREIGN" in error
    assert "AcceptEnv" in error
    assert row.journal() == []


@pytest.mark.report("P1", "P2")
def test_a_wrong_host_key_is_refused_on_the_target_and_on_the_proxy(
    row: Row, machines: Machines, tmp_path: Path, *, stand_in: bool
) -> None:
    wrong = make_key(tmp_path / "wrong").with_suffix(".pub").read_text().strip()
    access = {"privateKey": machines.private_key}
    jump = machines.jump.connection(**access)
    target = machines.target.connection(**access)
    for role, server, connection in (
        ("target", machines.target, {**target, "hostKey": wrong}),
        ("target", machines.target, {**target, "hostKey": wrong, "proxy": jump}),
        ("proxy", machines.jump, {**target, "proxy": {**jump, "hostKey": wrong}}),
    ):
        error = row.fail(create=row.note("create"), connection=connection)
        if stand_in:
            assert f"The {role} {server.address} did not show the host key" in error
    unpinned = {key: value for key, value in target.items() if key != "hostKey"}
    row.up(create=row.note("unpinned"), connection=unpinned)
    assert row.journal() == ["unpinned"]


@pytest.mark.report("S7", "P1")
def test_keys_come_from_the_agent_on_both_hops(
    row: Row, machines: Machines, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    row.up(
        create=row.note("${SSH_CONNECTION##* }"),
        connection=machines.target.connection(proxy=machines.jump.connection()),
    )
    assert row.journal() == [str(machines.target.port)]
    monkeypatch.delenv("SSH_AUTH_SOCK")
    named = machines.target.connection(agentSocketPath=str(agent))
    row.up(create=row.note("named"), connection=named)
    assert row.journal() == ["named"]


def test_a_dead_agent_fails_even_with_a_private_key_and_so_does_none_without(
    row: Row, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stand_in: bool
) -> None:
    error = row.fail(create=row.note("create"), connection=machines.target.connection())
    if stand_in:
        assert f"There is no SSH agent for the target {machines.target.address}" in error
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "dead"))
    error = row.fail(create=row.note("create"))
    assert str(tmp_path / "dead") in error
    if stand_in:
        assert f"No SSH agent answers at {tmp_path / 'dead'}, which the target" in error
    assert row.journal() == []


def test_secrets_do_not_stand_in_the_state_in_clear(row: Row, machines: Machines) -> None:
    def program() -> None:
        row.program({"create": row.note("create"), "stdin": pulumi.Output.secret("hush-hush")})()

    row.stack.up(program)
    assert row.journal() == ["create hush-hush"]
    stored = row.stack.stored()
    assert row.name in stored
    for secret in ("hush-hush", machines.target.host_key, machines.private_key.splitlines()[1]):
        assert secret not in stored
    assert row.stack.up(program) == _UNCHANGED


def test_the_previous_output_reaches_the_next_command_where_accepted(row: Row) -> None:
    inputs = {"create": "echo before", "update": row.note("update"), "add_previous_output_in_env": True}
    row.up(**inputs, stdin="a")
    row.up(**inputs, stdin="b")
    assert row.journal() == ["update b"]


def test_what_the_stand_in_does_not_serve_is_refused_in_one_error(stack: Stack, *, stand_in: bool) -> None:
    if not stand_in:
        pytest.skip("the command plugin is the official one")
    with pytest.raises(Failed, match="serves command:remote:Command only, not command:local:Command"):
        stack.up(functools.partial(command.local.Command, "local", create="true"))  # type: ignore[arg-type]


def test_a_program_of_its_own_runs_without_a_word_about_plugins(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: own\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(
        "import sys, pulumi, pulumi_command, pulumi_docker\n"
        "pulumi_command.remote.Command('it', connection={'host': 'nowhere'}, create='true')\n"
        "provider = pulumi_docker.Provider('it', host='ssh://nowhere', context='')\n"
        "image = pulumi_docker.Tag('it', source_image='a', target_image='b',"
        " opts=pulumi.ResourceOptions(provider=provider))\n"
        "pulumi.export('python', sys.prefix)\n"
    )

    def run(*arguments: str) -> str:
        result = subprocess.run(
            ["pulumi", *arguments], cwd=tmp_path, check=False, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout + result.stderr

    run("stack", "init", "own")
    shown = run("preview", "--non-interactive")
    assert "+ 4 to create" in shown
    assert sys.prefix in shown
    assert "warning" not in shown
    assert str(engine.home) not in shown


def test_a_stand_in_ends_after_an_engine_that_was_killed() -> None:
    plugin = [sys.executable, "-m", "lab.engine.command", "127.0.0.1:1"]
    starts = [sys.executable, "-c", f"import subprocess; subprocess.run({plugin})"]
    with subprocess.Popen(starts, stdout=subprocess.PIPE) as engine:
        assert engine.stdout
        assert int(engine.stdout.readline()) > 0
        (number,) = Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split()
        engine.kill()
    wait_until(lambda: not Path(f"/proc/{number}").exists(), "the plugin lives on")
