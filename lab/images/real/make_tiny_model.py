"""Make a tiny Qwen3 with random weights: the same files, byte for byte, at each run.

Usage: make_tiny_model.py DIRECTORY
"""

# mypy: disable-error-code="import-not-found, misc, no-any-return"
# What it imports is in the image only.

import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
VOCABULARY = 512
CONTEXT = 4096


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, and the tokens that Qwen3's parsers look for."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    bytewise.add_special_tokens([AddedToken(token, special=True) for token in (END_OF_TEXT, START, END)])
    bytewise.add_tokens([AddedToken(token, special=False) for token in MARKS])
    made = PreTrainedTokenizerFast(
        tokenizer_object=bytewise, eos_token=END, pad_token=END_OF_TEXT, model_max_length=CONTEXT
    )
    made.chat_template = Path(__file__).with_name("chat_template.jinja").read_text()
    return made


def model(words: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Two layers, small enough to load in a moment, with heads that two ranks can share."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config).to(torch.bfloat16)


def main(directory: Path) -> None:
    """Write the model in shards, with an index, as a large one is."""
    words = tokenizer()
    words.save_pretrained(directory)
    model(words).save_pretrained(directory, max_shard_size="300KB")
    for file in directory.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
