"""Which versions make up the engine: those that the pinned Python packages belong to."""

from __future__ import annotations

from importlib.metadata import version

PULUMI = version("pulumi")
DOCKER = version("pulumi-docker")
COMMAND = version("pulumi-command")
GO = "1.26.6"
"""The oldest Go that builds the modules here, and the one that is fetched where there is none."""
