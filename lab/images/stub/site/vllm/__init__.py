"""A stand-in for vLLM: its command line, its refusals and its API, without a model."""

import os

__version__ = os.environ.get("STUB_VLLM_VERSION", "0.17.1rc1")
