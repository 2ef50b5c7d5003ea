"""A model that only looks like one: what the stub image asks of a model's folder."""

from __future__ import annotations

import json
import random
import struct

_LAYERS = 3
_ROWS, _COLUMNS = 16, 64

_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": _COLUMNS,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "vocab_size": 512,
}


def fake_model(*, rows: int = _ROWS, seed: int = 0) -> dict[str, bytes]:
    """Make the files, by name: configuration, index and one valid shard a layer.

    Args:
        rows: Of each layer's one tensor, at 128 bytes a row.
        seed: Another number makes other weights; with 0 they are zeros.
    """
    files = {"config.json": _json(_CONFIG)}
    weights = {}
    for layer in range(_LAYERS):
        name, shard = f"model.layers.{layer}.weight", f"model-{layer + 1:05}-of-{_LAYERS:05}.safetensors"
        weights[name] = shard
        files[shard] = _shard(name, _weights(rows, seed and seed * _LAYERS + layer))
    index = {"metadata": {"total_size": _LAYERS * rows * 2 * _COLUMNS}, "weight_map": weights}
    return {**files, "model.safetensors.index.json": _json(index)}


def _weights(rows: int, seed: int) -> bytes:
    size = 2 * rows * _COLUMNS
    return random.Random(seed).randbytes(size) if seed else bytes(size)  # noqa: S311 - no secret


def _shard(name: str, data: bytes) -> bytes:
    shape, offsets = [len(data) // (2 * _COLUMNS), _COLUMNS], [0, len(data)]
    header = json.dumps({name: {"dtype": "BF16", "shape": shape, "data_offsets": offsets}})
    return struct.pack("<Q", len(header)) + header.encode() + data


def _json(content: object) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"
