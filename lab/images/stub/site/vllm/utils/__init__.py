"""Tools of all of vLLM; older versions have the argument parser here."""

from vllm.utils.argparse_utils import FlexibleArgumentParser

__all__ = ["FlexibleArgumentParser"]
