"""The stand-in's answers to the Pulumi engine."""
# ruff: noqa: N802 - the methods' names are the protocol's

from __future__ import annotations

import functools
import json
import os
import secrets
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import grpc.aio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct, Value
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc

from lab.engine.command.values import (
    UNKNOWN,
    CommandError,
    is_secret,
    plain,
    plain_fields,
    secret,
    set_defaults,
    unmarked,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lab.engine.command.ssh import Pool
    from lab.engine.command.values import Json

    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

VERSION = "1.2.1"
TYPE = "command:remote:Command"

_INPUTS = frozenset(
    {
        "addPreviousOutputInEnv",
        "connection",
        "create",
        "delete",
        "environment",
        "logging",
        "stdin",
        "triggers",
        "update",
    }
)
_CONNECTION_DEFAULTS: dict[str, bool | float | str] = {
    "user": "root",
    "port": 22.0,
    "dialErrorLimit": 10.0,
    "perDialTimeout": 15.0,
}
_LOGGED = {
    "none": frozenset[str](),
    "stdout": frozenset({"stdout"}),
    "stderr": frozenset({"stderr"}),
    "stdoutAndStderr": frozenset({"stdout", "stderr"}),
}
_ENGINE_GONE_SECONDS = 2.0
_GRPC_OPTIONS = [("grpc.max_receive_message_length", 400 * 1024**2)]

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


async def serve(engine_address: str) -> None:
    """Serve until the engine ends this process, or is no more.

    Args:
        engine_address: Where the engine listens.
    """
    server = grpc.aio.server(options=_GRPC_OPTIONS)
    provider = Provider(engine_address)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    engine = os.getppid()
    # an engine that was killed ends nobody; what runs on a node then is not cut off
    while os.getppid() == engine or provider.calls:
        await server.wait_for_termination(timeout=_ENGINE_GONE_SECONDS)


def _told(
    method: Callable[[Provider, _Request, Context], Awaitable[_Response]],
) -> Callable[[Provider, _Request, Context], Awaitable[_Response]]:
    """Let an error reach the user as a message without a traceback."""

    @functools.wraps(method)
    async def answer(self: Provider, request: _Request, context: Context) -> _Response:
        self.calls += 1
        try:
            return await method(self, request, context)
        except CommandError as error:
            message = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is
            message = f"The stand-in command plugin failed: {error!r}."
        finally:
            self.calls -= 1
        return await context.abort(grpc.StatusCode.UNKNOWN, message)

    return answer


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """Serves remote commands.

    Attributes:
        calls: How many requests are worked on.
    """

    def __init__(self, engine_address: str) -> None:
        """Take the address of the engine, which shows what commands print while they run."""
        self.calls = 0
        self._engine: Any = engine_pb2_grpc.EngineStub(grpc.aio.insecure_channel(engine_address))

    @functools.cached_property
    def _pool(self) -> Pool:
        """Load SSH with the first command: a preview needs none, and starts sooner without."""
        from lab.engine.command.ssh import Pool  # noqa: PLC0415

        return Pool()

    # About the plugin itself

    async def Handshake(self, _request: object, _context: Context) -> provider_pb2.ProviderHandshakeResponse:
        """Tell what kinds of values are understood."""
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    async def GetPluginInfo(self, _request: object, _context: Context) -> plugin_pb2.PluginInfo:
        """Tell the version that this stands in for."""
        return plugin_pb2.PluginInfo(version=VERSION)

    async def GetSchema(self, _request: object, _context: Context) -> provider_pb2.GetSchemaResponse:
        """Give a schema without details: programs use the official SDK."""
        return provider_pb2.GetSchemaResponse(schema=json.dumps({"name": "command", "version": VERSION}))

    async def CheckConfig(
        self, request: provider_pb2.CheckRequest, _context: Context
    ) -> provider_pb2.CheckResponse:
        """Accept the provider's configuration, which is empty."""
        return provider_pb2.CheckResponse(inputs=request.news)

    async def DiffConfig(self, _request: object, _context: Context) -> provider_pb2.DiffResponse:
        """Find no difference."""
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    async def Configure(self, _request: object, _context: Context) -> provider_pb2.ConfigureResponse:
        """Tell what kinds of values are understood, and that previews are served."""
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    async def Cancel(self, _request: object, _context: Context) -> Empty:
        """Leave running what runs, as the official plugin does."""
        return Empty()

    @_told
    async def Invoke(
        self, request: provider_pb2.InvokeRequest, _context: Context
    ) -> provider_pb2.InvokeResponse:
        """Refuse functions."""
        _refuse(request.tok)

    @_told
    async def Call(self, request: provider_pb2.CallRequest, _context: Context) -> provider_pb2.CallResponse:
        """Refuse methods."""
        _refuse(request.tok)

    @_told
    async def Construct(
        self, request: provider_pb2.ConstructRequest, _context: Context
    ) -> provider_pb2.ConstructResponse:
        """Refuse components."""
        _refuse(request.type)

    # The life of a command

    @_told
    async def Check(
        self, request: provider_pb2.CheckRequest, _context: Context
    ) -> provider_pb2.CheckResponse:
        """Fill in defaults and refuse what cannot be meant."""
        kind = request.urn.split("::")[-2].rpartition("$")[2]
        if kind != TYPE:
            _refuse(kind)
        inputs = Struct()
        inputs.CopyFrom(request.news)
        set_defaults(inputs, {"addPreviousOutputInEnv": True})
        reasons = dict.fromkeys(sorted(set(inputs.fields) - _INPUTS), "is no input of a Command")
        connection = inputs.fields["connection"]  # not given, it becomes an empty value, which is refused
        reasons |= _check_connection(unmarked(connection), "connection")
        if not reasons and not is_secret(connection):
            connection.CopyFrom(secret(connection))
        logging = plain_fields(inputs).get("logging", UNKNOWN)
        if logging not in (UNKNOWN, *_LOGGED):
            reasons["logging"] = f"is {logging!r}; it may be {', '.join(_LOGGED)}"
        failures = [provider_pb2.CheckFailure(property=key, reason=reason) for key, reason in reasons.items()]
        return provider_pb2.CheckResponse(inputs=None if failures else inputs, failures=failures)

    @_told
    async def Diff(self, request: provider_pb2.DiffRequest, _context: Context) -> provider_pb2.DiffResponse:
        """Compare inputs: changed triggers replace the resource, all else updates it."""
        old, new = plain_fields(request.old_inputs), plain_fields(request.news)
        changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        diff = provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=changed,
            replaces=[key for key in changed if key == "triggers"],
            hasDetailedDiff=True,
        )
        for key in changed:
            kind = "ADD" if key not in old else "DELETE" if key not in new else "UPDATE"
            if key == "triggers":
                kind += "_REPLACE"
            diff.detailedDiff[key].kind = provider_pb2.PropertyDiff.Kind.Value(kind)
            diff.detailedDiff[key].inputDiff = True
        return diff

    @_told
    async def Create(
        self, request: provider_pb2.CreateRequest, _context: Context
    ) -> provider_pb2.CreateResponse:
        """Run `create`."""
        state = await self._apply(request.urn, request.properties, {}, ("create",), preview=request.preview)
        name = request.urn.rpartition("::")[2]
        return provider_pb2.CreateResponse(id=name + secrets.token_hex(4), properties=state)

    @_told
    async def Update(
        self, request: provider_pb2.UpdateRequest, _context: Context
    ) -> provider_pb2.UpdateResponse:
        """Run `update`, or the new `create` where there is none."""
        state = await self._apply(
            request.urn,
            request.news,
            plain_fields(request.olds),
            ("update", "create"),
            preview=request.preview,
        )
        return provider_pb2.UpdateResponse(properties=state)

    @_told
    async def Delete(self, request: provider_pb2.DeleteRequest, _context: Context) -> Empty:
        """Run the `delete` that the state holds, over the connection that the state holds."""
        fields = plain_fields(request.properties)
        if "delete" in fields:
            await self._run(request.urn, str(fields["delete"]), fields, fields)
        return Empty()

    async def Read(self, request: provider_pb2.ReadRequest, _context: Context) -> provider_pb2.ReadResponse:
        """Give the state back as it is: the machine is not looked at."""
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    async def _apply(
        self, urn: str, inputs: Struct, old: dict[str, Json], commands: tuple[str, ...], *, preview: bool
    ) -> Struct:
        """Run the first of some commands that is given, and give the new state."""
        state = Struct()
        state.CopyFrom(inputs)
        fields = plain_fields(inputs)
        printed: dict[str, Json] = {stream: old.get(stream, "") for stream in ("stdout", "stderr")}
        command = next((fields[key] for key in commands if key in fields), None)
        if preview:
            printed = dict.fromkeys(printed, UNKNOWN)
        elif command is not None:
            printed = await self._run(urn, str(command), fields, old)
        state.update(printed)
        return state

    async def _run(
        self, urn: str, command: str, fields: dict[str, Json], old: dict[str, Json]
    ) -> dict[str, Json]:
        """Run a command over the connection among some fields, and give what it printed."""
        from lab.engine.command.ssh import Connection  # noqa: PLC0415

        async def log(message: str) -> None:
            await self._engine.Log(
                engine_pb2.LogRequest(
                    severity=engine_pb2.LogSeverity.INFO, message=message, urn=urn, ephemeral=True
                )
            )

        previous = {}
        if fields.get("addPreviousOutputInEnv", True):
            previous = {
                f"PULUMI_COMMAND_{stream.upper()}": str(old[stream])
                for stream in ("stdout", "stderr")
                if old.get(stream)
            }
        environment = fields.get("environment")
        return await self._pool.run(
            Connection.parse(fields["connection"]),
            command,
            stdin=str(fields.get("stdin", "")),
            environment=environment if isinstance(environment, dict) else {},
            optional_environment=previous,
            logged=_LOGGED[str(fields.get("logging", "stdoutAndStderr"))],
            log=log,
        )


def _refuse(kind: str) -> NoReturn:
    raise CommandError(
        f"The stand-in for the command plugin serves {TYPE} only, not {kind}. "
        f"Install the official one: pulumi plugin install resource command {VERSION}."
    )


def _check_connection(connection: Value, path: str) -> dict[str, str]:
    """Fill in the defaults of a connection, and say what it lacks."""
    if plain(connection) == UNKNOWN:
        return {}
    if connection.WhichOneof("kind") != "struct_value":
        return {path: "is missing"}
    fields = connection.struct_value
    set_defaults(fields, _CONNECTION_DEFAULTS)
    reasons = {} if plain_fields(fields).get("host") else {f"{path}.host": "is missing"}
    if "proxy" in plain_fields(fields):
        reasons |= _check_connection(unmarked(fields.fields["proxy"]), f"{path}.proxy")
    return reasons
