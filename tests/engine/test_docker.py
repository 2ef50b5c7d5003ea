"""The docker plugin takes what the Python package's own types say."""

from __future__ import annotations

import collections.abc
import json
import subprocess
import typing
from typing import TYPE_CHECKING, Any

import pulumi_docker
import pytest
from pulumi import _types as pulumi_types

from lab.engine.setup import Kind

if TYPE_CHECKING:
    from lab.engine.setup import Engine


@pytest.fixture(scope="module")
def inputs(engine: Engine) -> dict[str, Any]:
    if engine.docker is Kind.OFFICIAL:
        pytest.skip("the docker plugin is the official one, which the Python package was made from")
    plugin = next(engine.home.glob("plugins/resource-docker-*/pulumi-resource-docker"))
    listing = subprocess.run([plugin, "-inputs"], check=True, capture_output=True)
    return dict(json.loads(listing.stdout))


@pytest.mark.parametrize("resource", ["Container", "RemoteImage", "Network", "Volume", "Tag", "Provider"])
def test_inputs_have_the_names_and_shapes_of_the_python_package(
    inputs: dict[str, Any], resource: str
) -> None:
    assert inputs[resource] == _fields(getattr(pulumi_docker, f"{resource}Args"))


def test_version_is_that_of_the_python_package(inputs: dict[str, Any], engine: Engine) -> None:
    del inputs
    plugin = next(engine.home.glob("plugins/resource-docker-*/pulumi-resource-docker"))
    said = subprocess.run([plugin, "-version"], check=True, capture_output=True, text=True).stdout
    assert plugin.parent.name == f"resource-docker-v{said.strip()}"


def _fields(kind: type) -> dict[str, Any]:
    types = pulumi_types.input_type_types(kind)
    return {name: _shape(types[name]) for name in pulumi_types.input_type_py_to_pulumi_names(kind).values()}


def _shape(kind: Any) -> Any:  # noqa: ANN401 - a type, or a part of one
    """Give a field's shape as the plugin lists it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:  # of a value, an awaitable and an Output of it
        return _shape(arguments[0])
    if origin is collections.abc.Sequence:
        return [_shape(arguments[0])]
    if origin is collections.abc.Mapping:
        return {"*": _shape(arguments[1])}
    return _fields(kind) if isinstance(kind, type) and pulumi_types.is_input_type(kind) else None
