"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# The machine that runs the tests may be busy: a slow example is no failure.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
