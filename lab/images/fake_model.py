"""A model that only looks like one: what the stub image asks of a model's folder."""

from __future__ import annotations

import json
import struct

_LAYERS = 3
_ROWS, _COLUMNS = 16, 64
_BYTES = 2 * _ROWS * _COLUMNS

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


def fake_model() -> dict[str, bytes]:
    """Make the files, by name: configuration, index and one valid shard of zeros a layer."""
    files = {"config.json": _json(_CONFIG)}
    weights = {}
    for layer in range(_LAYERS):
        name, shard = f"model.layers.{layer}.weight", f"model-{layer + 1:05}-of-{_LAYERS:05}.safetensors"
        weights[name] = shard
        files[shard] = _shard(name)
    index = {"metadata": {"total_size": _LAYERS * _BYTES}, "weight_map": weights}
    return {**files, "model.safetensors.index.json": _json(index)}


def _shard(name: str) -> bytes:
    header = json.dumps({name: {"dtype": "BF16", "shape": [_ROWS, _COLUMNS], "data_offsets": [0, _BYTES]}})
    return struct.pack("<Q", len(header)) + header.encode() + bytes(_BYTES)


def _json(content: object) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"
