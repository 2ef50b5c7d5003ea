"""The engine's arguments, and the refusals of its configuration."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

_BACKENDS = ("ray", "mp", "uni", "external_launcher")
_QUANTIZATIONS = (
    "awq", "awq_marlin", "bitsandbytes", "compressed-tensors", "fp8", "gguf", "gptq", "gptq_marlin",
    "modelopt", "modelopt_fp4", "mxfp4",
)  # fmt: skip


@dataclass(frozen=True)
class EngineConfig:
    """What the server needs of it."""

    world_size: int
    backend: str
    max_model_len: int


@dataclass(frozen=True)
class AsyncEngineArgs:
    """The arguments, as parsed."""

    args: argparse.Namespace

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> AsyncEngineArgs:
        """Keep the arguments."""
        return cls(args)

    def create_engine_config(self) -> EngineConfig:
        """Check the arguments against this machine and the model's files.

        Raises:
            ValueError: They do not fit.
            OSError: There is no model.
        """
        args, model = self.args, _model_config(self.args.model)
        if not 0 < args.gpu_memory_utilization <= 1:
            raise ValueError(
                f"gpu_memory_utilization must be in (0, 1], but is {args.gpu_memory_utilization}: "
                "Input should be less than or equal to 1"
            )
        if args.quantization and args.quantization not in _QUANTIZATIONS:
            raise ValueError(
                f"Unknown quantization method: {args.quantization}. Must be one of {list(_QUANTIZATIONS)}."
            )
        heads, ranks = model["num_attention_heads"], args.tensor_parallel_size
        if heads % ranks:
            raise ValueError(
                f"Total number of attention heads ({heads}) must be divisible by "
                f"tensor parallel size ({ranks})."
            )
        return EngineConfig(
            world_size=args.tensor_parallel_size * args.pipeline_parallel_size,
            backend=_backend(args),
            max_model_len=_length(args.max_model_len, model["max_position_embeddings"]),
        )


def _model_config(name: str) -> dict[str, Any]:
    file = Path(name) / "config.json"
    if not file.is_file():
        raise OSError(
            f"Can't load the configuration of '{name}': no file named config.json in that directory."
        )
    config = json.loads(file.read_text())
    text: dict[str, Any] = config.get("text_config", config)
    return text


def _length(wanted: int | None, most: int) -> int:
    if wanted is None or wanted == -1:
        return most
    if wanted > most and os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
        raise ValueError(
            f"User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
            f"(max_position_embeddings={most} or model_max_length=None in model's config.json)."
        )
    return wanted


def _backend(args: argparse.Namespace) -> str:
    world = args.tensor_parallel_size * args.pipeline_parallel_size
    here = int(os.environ.get("STUB_GPUS", "1"))
    backend: str | None = args.distributed_executor_backend
    if backend is not None and backend not in _BACKENDS:
        raise ValueError(
            f"Unrecognized distributed executor backend {backend}. Supported values are 'ray', 'mp' 'uni', "
            "'external_launcher' or custom ExecutorBase subclass."
        )
    if backend == "ray" and importlib.util.find_spec("ray") is None:
        raise ValueError(
            "Failed to import Ray: No module named 'ray'. Please install Ray with `pip install ray`."
        )
    if args.nnodes > 1:
        if backend not in (None, "mp"):
            raise ValueError("nnodes > 1 can only be set when distributed executor backend is mp.")
        if world % args.nnodes or world // args.nnodes > here:
            raise ValueError(f"World size ({world}) does not fit {args.nnodes} nodes with {here} GPUs each.")
        return "mp"
    if world > here and backend is None:
        raise ValueError(
            f"World size ({world}) is larger than the number of available GPUs ({here}) in this node. If "
            "this is intentional and you are using:\n- ray, set '--distributed-executor-backend ray'.\n"
            "- multiprocessing, set '--nnodes' appropriately."
        )
    return backend or ("mp" if world > 1 else "uni")
