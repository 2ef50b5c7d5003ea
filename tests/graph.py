"""The whole program under Pulumi's mocks, with a monitor that keeps what the engine would be asked.

Mocks alone hide dependencies, deleteBeforeReplace, providers and secrets; the requests hold them.
"""

from __future__ import annotations

import asyncio
import json
import runpy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pulumi
from google.protobuf import json_format
from pulumi.runtime import mocks, settings

from tests import samples

ROOT = Path(__file__).parent.parent
SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d"  # noqa: S105 - how Pulumi marks any secret
SECRET_VALUE = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105
API_KEY = "canary-api-key"
RAY_TOKEN = "canary-ray-token"  # noqa: S105
HUB_TOKEN = "canary-hub-token"  # noqa: S105


@dataclass(frozen=True)
class Registration:
    """One resource as the program asked for it."""

    type: str
    name: str
    parent: str
    inputs: dict[str, Any]
    dependencies: tuple[str, ...]
    delete_before_replace: bool
    replace_on_changes: tuple[str, ...]
    provider: str

    @property
    def key(self) -> str:
        return f"{self.type.rpartition(':')[2]} {self.name}"


@dataclass
class Graph:
    """What one run of the program registered, by `Type name`."""

    resources: dict[str, Registration] = field(default_factory=dict)
    urns: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Registration:
        return self.resources[key]

    def needs(self, key: str) -> set[str]:
        """All that must exist before a resource, near and far; components stand for their children."""
        found: set[str] = set()
        queue = list(self[key].dependencies)
        while queue:
            name = self.urns.get(queue.pop(), "")
            if name in self.resources and name not in found:
                found.add(name)
                queue += self.resources[name].dependencies
        return found

    def of_type(self, name: str) -> dict[str, Registration]:
        return {each.name: each for each in self.resources.values() if each.type.endswith(f":{name}")}


class _Mocks(mocks.Mocks):
    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        raise AssertionError(f"the program called {args.token}, and previews must reach nothing")

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        outputs = dict(args.inputs)
        if args.typ == "command:remote:Command":
            outputs |= {"stdout": "public_key=ssh-ed25519 AAAA\nload_seconds=7\nvllm=0\n", "stderr": ""}
        return f"id-of-{args.name}", outputs


class _Monitor(mocks.MockMonitor):
    def __init__(self, graph: Graph) -> None:
        super().__init__(_Mocks())
        self.graph = graph

    def RegisterResource(self, request: Any) -> Any:  # noqa: ANN401, N802 - the SDK's untyped protocol
        response = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        registration = Registration(
            type=request.type,
            name=request.name,
            parent=request.parent,
            inputs=json_format.MessageToDict(request.object),
            dependencies=tuple(request.dependencies),
            delete_before_replace=request.deleteBeforeReplace,
            replace_on_changes=tuple(request.replaceOnChanges),
            provider=request.provider,
        )
        if request.type != "pulumi:pulumi:Stack":
            self.graph.resources[registration.key] = registration
            self.graph.urns[response.urn] = registration.key
        return response


def deploy(configuration: samples.Config, *, preview: bool = False, secrets: bool = True) -> Graph:
    """Run the program once."""
    values = samples.raw(configuration)
    secret = {"apiKey": API_KEY, "rayToken": RAY_TOKEN, "hubToken": HUB_TOKEN} if secrets else {}
    namespaced = {f"spark-vllm:{key}": value for key, value in {**values, **secret}.items()}
    environment = {
        "PULUMI_CONFIG": json.dumps(namespaced),
        "PULUMI_CONFIG_SECRET_KEYS": json.dumps([f"spark-vllm:{key}" for key in secret]),
        "SSH_AUTH_SOCK": "/nowhere",
    }
    graph = Graph()
    try:
        asyncio.get_event_loop()
    except RuntimeError:  # another test has taken away the loop of this thread
        asyncio.set_event_loop(asyncio.new_event_loop())
    mocks.set_mocks(_Mocks(), project="spark-vllm", stack="test", preview=preview, monitor=_Monitor(graph))
    pulumi.runtime.set_all_config(namespaced, [f"spark-vllm:{key}" for key in secret])

    with mock.patch.dict("os.environ", environment):
        _run()
    return graph


def _run() -> None:
    """Run the program as Pulumi does: below a stack, the state of an earlier run forgotten."""
    settings.SETTINGS.rpc_manager.clear()
    settings.SETTINGS.outputs.clear()
    settings.ROOT.set(None)

    def program() -> None:
        runpy.run_path(str(ROOT / "__main__.py"))

    asyncio.get_event_loop().run_until_complete(pulumi.runtime.run_in_stack(program))


def is_secret(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a value of a request is marked as secret."""
    return isinstance(value, dict) and value.get(SECRET_SIGNATURE) == SECRET_VALUE
