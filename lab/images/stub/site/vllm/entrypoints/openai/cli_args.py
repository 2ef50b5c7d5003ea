"""The flags of `vllm serve`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

_DEFAULT_PORT = 8000


def human_int(text: str) -> int:
    """A whole number, also as `128k` (thousands) or `128K` (1024s); `auto` for the largest that fits."""
    if text == "auto":
        return -1
    units = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    return int(float(number) * unit) if unit > 1 else int(number)


def json_value(text: str) -> Any:  # noqa: ANN401
    """JSON.

    Raises:
        ArgumentTypeError: It is none.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to <function loads>.") from error


_INTEGERS = {
    "pipeline-parallel-size": "-pp", "tensor-parallel-size": "-tp", "data-parallel-size": "-dp",
    "nnodes": "-n",
}  # fmt: skip
_KEY_VALUES = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "nvfp4")
_TYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
_HUMAN = ("max-model-len", "max-num-batched-tokens", "max-num-seqs", "block-size", "max-logprobs", "seed")
_WORDS = (
    "attention-backend", "chat-template", "chat-template-content-format", "config-format",
    "distributed-executor-backend", "download-dir", "generation-config", "load-format",
    "mamba-cache-dtype", "mamba-ssm-cache-dtype", "quantization", "reasoning-parser",
    "reasoning-parser-plugin", "revision", "root-path", "served-model-name", "ssl-certfile", "ssl-keyfile",
    "tokenizer", "tokenizer-mode", "tool-call-parser", "tool-parser-plugin", "uvicorn-log-level",
)  # fmt: skip
_SWITCHES = (
    "enable-prefix-caching", "enforce-eager", "trust-remote-code", "enable-expert-parallel",
    "enable-chunked-prefill", "async-scheduling", "disable-custom-all-reduce", "language-model-only",
    "enable-sleep-mode", "calculate-kv-scales", "enable-log-requests", "enable-auto-tool-choice",
    "enable-prompt-tokens-details", "enable-force-include-usage", "disable-log-stats", "skip-mm-profiling",
)  # fmt: skip
_JSON = {
    "override-generation-config": None, "compilation-config": "-cc", "speculative-config": "-sc",
    "hf-overrides": None, "limit-mm-per-prompt": None, "default-chat-template-kwargs": None,
    "kv-transfer-config": None, "model-loader-extra-config": None, "rope-scaling": None,
    "mm-processor-kwargs": None, "structured-outputs-config": None, "allowed-origins": None,
}  # fmt: skip


def make_arg_parser(parser: FlexibleArgumentParser) -> FlexibleArgumentParser:
    """Add the flags that this project's users set."""
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, default=_DEFAULT_PORT)
    parser.add_argument("--api-key", nargs="*")
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--node-rank", "-r", type=int, default=0)
    parser.add_argument("--master-addr", default="127.0.0.1")
    parser.add_argument("--master-port", type=int, default=29501)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    parser.add_argument("--cpu-offload-gb", type=float, default=0)
    parser.add_argument("--swap-space", type=float, default=4)
    parser.add_argument("--kv-cache-dtype", choices=_KEY_VALUES, default="auto")
    parser.add_argument("--dtype", choices=_TYPES, default="auto")
    for name, short in _INTEGERS.items():
        parser.add_argument(f"--{name}", short, type=int, default=1)
    for name in _HUMAN:
        parser.add_argument(f"--{name}", type=human_int)
    for name in _WORDS:
        parser.add_argument(f"--{name}", nargs="+" if name == "served-model-name" else None)
    for name in _SWITCHES:
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=False)
    for name, abbreviation in _JSON.items():
        parser.add_argument(*[f"--{name}", *filter(None, [abbreviation])], type=json_value)
    return parser


def validate_parsed_serve_args(args: argparse.Namespace) -> None:
    """Refuse what can be refused before anything is loaded.

    Raises:
        TypeError: Automatic tool choice without a parser.
        ValueError: A chat template that is neither a file nor a template.
    """
    template = args.chat_template
    if template is not None and not set("{}\n") & set(template) and not Path(template).is_file():
        raise ValueError(
            f"The supplied chat template ({template}) looks like a file path, but it failed to be opened. "
            f"Reason: [Errno 2] No such file or directory: '{template}'"
        )
    if args.enable_auto_tool_choice and not args.tool_call_parser:
        raise TypeError("Error: --enable-auto-tool-choice requires --tool-call-parser")
