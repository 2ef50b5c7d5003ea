"""The stack that a command works on: its file, its settings, its secrets and its outputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from ruamel.yaml import YAML

from components.settings import PROJECT, Settings, parse
from scripts.errors import CommandError
from scripts.pulumi import ROOT, pulumi

StackName = Annotated[
    str, typer.Option("--stack", "-s", envvar="SPARK_VLLM_STACK", help="The stack, as pulumi names it.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config-file", help="The stack's file, as pulumi's option of that name.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
DEFAULT = "spark"


class StackError(CommandError):
    """A stack that a command cannot work on; the message names its file and the remedy."""


@dataclass(frozen=True)
class Stack:
    """One deployment, as its stack file describes it.

    Attributes:
        name: As pulumi has it.
        file: The stack file.
        settings: What it says, checked as `pulumi up` checks it.
    """

    name: str
    file: Path
    settings: Settings

    def has_secret(self, key: str) -> bool:
        """Whether the file sets a secret key."""
        return f"{PROJECT}:{key}" in _config(self.file)

    def secret(self, key: str) -> str | None:
        """A secret key in clear, as `secret` of this module says."""
        return secret(self.name, self.file, key)

    def outputs(self) -> dict[str, Any]:
        """The outputs of the last `pulumi up`; empty before the first.

        Raises:
            PulumiError: There is no such stack.
        """
        found: dict[str, Any] = json.loads(pulumi("stack", "output", "--json", "--stack", self.name))
        return found


def load(name: str, file: Path | None) -> Stack:
    """Read a stack's file.

    Args:
        name: The stack.
        file: Its file; Pulumi.<name>.yaml of the project where None.

    Raises:
        StackError: There is no such file, or `pulumi up` would not take it.
    """
    file = file or ROOT / f"Pulumi.{name}.yaml"
    if not file.exists():
        raise StackError(
            f"There is no {file.name}: `spark-vllm discover --stack {name}` makes it, or name another by "
            "--stack or --config-file."
        )
    prefix = f"{PROJECT}:"
    own = {key.removeprefix(prefix): value for key, value in _config(file).items() if key.startswith(prefix)}
    secret = [key for key, value in own.items() if isinstance(value, dict) and set(value) == {"secure"}]
    raw = {key: value if isinstance(value, str) else json.dumps(value) for key, value in own.items()}
    try:
        return Stack(name, file, parse(raw, secret))
    except ValueError as mistake:
        raise StackError(f"{file.name}: {mistake}") from None


def secret(stack: str, file: Path, key: str) -> str | None:
    """A secret key of a stack file in clear; None where the file does not set it.

    Raises:
        PulumiError: The passphrase is wrong or missing.
    """
    return _open(stack, file, key) if f"{PROJECT}:{key}" in _config(file) else None


@cache
def _open(stack: str, file: Path, key: str) -> str:
    return pulumi("config", "get", f"{PROJECT}:{key}", "--stack", stack, "--config-file", str(file)).strip()


def _config(file: Path) -> dict[str, Any]:
    document = YAML(typ="safe").load(file) or {}
    return document.get("config") or {}
