"""Property values as they travel between the engine and a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from google.protobuf.struct_pb2 import Struct, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

Json: TypeAlias = "bool | float | str | list[Json] | dict[str, Json] | None"

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What stands for a value that is not known yet, in previews."""


class CommandError(Exception):
    """What the user is told when something is refused or fails."""


_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - the mark of a secret, none itself


def plain(value: Value) -> Json:
    """Give a value without the marks of secrets and outputs."""
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [plain(item) for item in value.list_value.values]
    if kind == "struct_value":
        fields = value.struct_value.fields
        if _SIGNATURE in fields:
            return plain(fields["value"])
        return {key: plain(item) for key, item in fields.items()}
    if kind in (None, "null_value"):
        return None
    return cast("Json", getattr(value, kind))


def plain_fields(properties: Struct) -> dict[str, Json]:
    """Give the properties of a resource without marks, and without those that are null."""
    fields = {key: plain(item) for key, item in properties.fields.items()}
    return {key: item for key, item in fields.items() if item is not None}


def is_secret(value: Value) -> bool:
    """Tell whether a value as a whole is marked as secret."""
    fields = value.struct_value.fields
    return _SIGNATURE in fields and fields[_SIGNATURE].string_value == _SECRET


def secret(value: Value) -> Value:
    """Mark a value as secret."""
    return Value(
        struct_value=Struct(fields={_SIGNATURE: Value(string_value=_SECRET), "value": value}),
    )


def unmarked(value: Value) -> Value:
    """Give the value inside the mark of a secret, to be changed in place."""
    return value.struct_value.fields["value"] if is_secret(value) else value


def set_defaults(properties: Struct, defaults: Mapping[str, bool | float | str]) -> None:
    """Fill in what was left out."""
    for key, default in defaults.items():
        if plain(properties.fields[key]) is None:
            properties[key] = default
