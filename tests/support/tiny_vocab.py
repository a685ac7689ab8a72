"""Small vocabularies that real tokenizers can work with, as GGUF metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gguf

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
_WORDS = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "was", "on", "are", "as", "with", "his", "they")


@dataclass(frozen=True)
class TinyVocab:
    """`metadata` holds the `tokenizer.ggml.` keys without that prefix."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    metadata: dict[str, Any]


def bpe_vocab() -> TinyVocab:
    """Byte-level BPE in SmolLM's style: three control tokens, 256 bytes, some merged words."""
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(_byte_alphabet().values())
    merged: list[str] = []
    merges: list[str] = []
    for word in _WORDS:
        left = "Ġ"
        for letter in word:
            if left + letter not in merged:
                merged.append(left + letter)
                merges.append(f"{left} {letter}")
            left += letter
    tokens = (*control, *alphabet, *merged)
    types = (CONTROL,) * len(control) + (NORMAL,) * (len(tokens) - len(control))
    metadata = {
        "model": "gpt2",
        "pre": "smollm",
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "padding_token_id": 2,
        "add_bos_token": False,
        "add_space_prefix": False,
    }
    return TinyVocab(tokens, types, metadata)


def spm_vocab() -> TinyVocab:
    """SentencePiece in Gemma's style: control tokens, 256 byte tokens, letters and growing words."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"]
    types = [CONTROL, CONTROL, CONTROL, UNKNOWN]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    types += [BYTE] * 256
    pieces = list("▁ .,\nabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789".replace(" ", ""))
    for word in _WORDS:
        pieces.extend("▁" + word[:end] for end in range(1, len(word) + 1))
    unique = list(dict.fromkeys(pieces))
    tokens += unique
    types += [NORMAL] * len(unique)
    scores = [-1000.0] * 4 + [0.0] * 256 + [-float(index) for index in range(len(unique))]
    metadata = {
        "model": "llama",
        "pre": "default",
        "scores": scores,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "unknown_token_id": 3,
        "padding_token_id": 0,
        "add_bos_token": True,
        "add_eos_token": False,
        "add_space_prefix": False,
    }
    return TinyVocab(tuple(tokens), tuple(types), metadata)


def value_type(value: Any) -> tuple[Any, ...]:
    """The GGUF types of a metadata value, as `GGUFWriter.add_key_value` takes them."""
    kinds = gguf.GGUFValueType
    if isinstance(value, bool):
        return (kinds.BOOL,)
    if isinstance(value, int):
        return (kinds.UINT32,)
    if isinstance(value, str):
        return (kinds.STRING,)
    return (kinds.ARRAY, kinds.STRING)


def _byte_alphabet() -> dict[int, str]:
    """Byte to the printable character that stands for it in byte-level BPE."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + index) for index, byte in enumerate(others)}
