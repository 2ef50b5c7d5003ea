"""The errors that callers tell apart."""


class RayError(Exception):
    """Any of Ray's own."""


class RaySystemError(RayError):
    """Ray is not there."""


class AuthenticationError(RayError):
    """The token is missing or wrong."""
