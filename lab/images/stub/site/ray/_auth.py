"""Token authentication, as Ray has it from 2.52 on."""

from __future__ import annotations

import os
from pathlib import Path

from ray.exceptions import AuthenticationError


def required_token() -> str | None:
    """The token from the environment, its file or the home directory; None where the mode is off.

    Raises:
        AuthenticationError: The mode is on and there is no token.
    """
    if os.environ.get("RAY_AUTH_MODE", "disabled") != "token":
        return None
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    if file.is_file() and (token := file.read_text().strip()):
        return token
    raise AuthenticationError(
        "Token authentication is enabled but no authentication token was found. Ensure that the token for "
        "the cluster is available in a local file (e.g., ~/.ray/auth_token or via RAY_AUTH_TOKEN_PATH) or as "
        "the `RAY_AUTH_TOKEN` environment variable."
    )
