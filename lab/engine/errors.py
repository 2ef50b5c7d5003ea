"""What can go wrong while an engine is set up."""

from __future__ import annotations


class EngineError(Exception):
    """There is no engine to be had; the message says why and what to do."""
