"""The check of the API's own arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

TOOL_PARSERS = (
    "deepseek_v3", "deepseek_v31", "glm45", "granite", "hermes", "jamba", "kimi_k2", "llama3_json",
    "llama4_json", "minimax_m2", "mistral", "openai", "pythonic", "qwen3_coder", "qwen3_xml",
)  # fmt: skip
REASONING_PARSERS = (
    "deepseek_r1", "deepseek_v3", "glm45", "granite", "kimi_k2", "minimax_m2", "mistral", "openai_gptoss",
    "qwen3", "seed_oss", "step3",
)  # fmt: skip


def validate_api_server_args(args: argparse.Namespace) -> None:
    """Refuse parsers that this version does not have.

    Raises:
        KeyError: The name, and those that there are.
    """
    if args.enable_auto_tool_choice and args.tool_call_parser not in TOOL_PARSERS:
        known = ",".join(TOOL_PARSERS)
        raise KeyError(f"invalid tool call parser: {args.tool_call_parser} (chose from {{ {known} }})")
    if args.reasoning_parser and args.reasoning_parser not in REASONING_PARSERS:
        known = ",".join(REASONING_PARSERS)
        raise KeyError(f"invalid reasoning parser: {args.reasoning_parser} (chose from {{ {known} }})")
