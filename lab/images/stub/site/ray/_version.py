"""The version, which an environment variable may change so that two nodes can disagree."""

import os

__version__ = os.environ.get("STUB_RAY_VERSION", "2.53.0")
