"""Small GGUF files, written with the `gguf` package, for whoever reads such files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
BPE_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>")


def byte_alphabet() -> list[str]:
    """The 256 characters of byte-level vocabularies, in the order of the bytes."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(0x100 + hidden.index(byte)) for byte in range(256)]


def bpe_tokenizer(**overrides: Any) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer: control tokens first, the 256 bytes, a few merges. No
    BOS; `<|im_end|>` is EOS."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "u s", "e r", "us er"]
    tokens = [*BPE_CONTROL, *byte_alphabet(), *(merge.replace(" ", "") for merge in merges)]
    control = len(BPE_CONTROL)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * control + [1] * (len(tokens) - control),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 3,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
        **overrides,
    }


def spm_tokenizer(**overrides: Any) -> dict[str, Any]:
    """Metadata of a sentencepiece tokenizer with byte fallback, BOS and a space before the text."""
    pieces = ["▁", "h", "e", "l", "o", "w", "r", "d", "he", "ll", "hell", "hello", "▁hello", "or", "wor", "ld", "world"]
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *byte_pieces, *pieces, "[user]"]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces) + [4],
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(index) for index in range(len(pieces))] + [0.0],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **overrides,
    }


def llama_sizes(**overrides: Any) -> dict[str, Any]:
    """Metadata of a llama model of two layers, 32 wide."""
    return {
        "llama.block_count": 2,
        "llama.context_length": 256,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        **overrides,
    }


def llama_tensors(vocab: int, layers: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights for `llama_sizes()`."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, 32), "output_norm.weight": (32,)}
    for layer in range(layers):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (32,),
            f"blk.{layer}.attn_q.weight": (32, 32),
            f"blk.{layer}.attn_k.weight": (16, 32),
            f"blk.{layer}.attn_v.weight": (16, 32),
            f"blk.{layer}.attn_output.weight": (32, 32),
            f"blk.{layer}.ffn_norm.weight": (32,),
            f"blk.{layer}.ffn_gate.weight": (64, 32),
            f"blk.{layer}.ffn_up.weight": (64, 32),
            f"blk.{layer}.ffn_down.weight": (32, 64),
        }
    return {name: rng.standard_normal(shape, dtype=np.float32) * 0.1 for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray] | None = None,
    *,
    architecture: str = "llama",
    kinds: Mapping[str, str] = MappingProxyType({}),
    split_max_tensors: int = 0,
    empty_first: bool = False,
) -> Path:
    """Writes the file and returns its path. A key whose value is None is left out.

    With `split_max_tensors` the tensors go into parts of so many, after a first part without any if
    `empty_first`; the path is the first part's."""
    writer = gguf.GGUFWriter(
        path, architecture, split_max_tensors=split_max_tensors, small_first_shard=empty_first and bool(tensors)
    )
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, tensor in (tensors or {}).items():
        if name in kinds:
            kind = gguf.GGMLQuantizationType[kinds[name]]
            blocks = tensor if tensor.dtype == np.uint8 else gguf.quants.quantize(tensor, kind)
            writer.add_tensor(name, blocks, raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return writer.format_shard_names(path)[0]


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case None:
            return
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)
