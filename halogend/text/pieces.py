"""The bytes that a token stands for in output."""

from __future__ import annotations

import functools
from collections.abc import Sequence

SPACE = "▁"  # how sentencepiece vocabularies write a space


def spaced(text: str) -> bytes:
    """Of a sentencepiece vocabulary's piece."""
    return text.replace(SPACE, " ").encode()


def byte_of(text: str) -> int:
    """Of a byte token, `<0x0A>`. Raises ValueError for what is none."""
    if len(text) != 6 or not text.startswith("<0x") or not text.endswith(">"):
        raise ValueError(f"{text!r} is no byte token")
    return int(text[3:5], 16)


def byte_level(text: str) -> bytes:
    """Of a byte-level vocabulary's token; one that is not byte-level stands for itself."""
    to_byte = byte_alphabet()
    try:
        return bytes([to_byte[char] for char in text])
    except KeyError:
        return text.encode()


def byte_text(data: bytes) -> str:
    """How a byte-level vocabulary writes these bytes."""
    chars = _char_alphabet()
    return "".join([chars[byte] for byte in data])


def longest_bytes(texts: Sequence[str], stand_for: Sequence[bytes], *, is_byte_level: bool) -> int:
    """No token covers more bytes of a text. `stand_for` are the tokens' pieces; where they are not
    byte-level, a text may also spell a token as the vocabulary does."""
    if is_byte_level:
        return max(len(piece) or len(text.encode()) for text, piece in zip(texts, stand_for, strict=True))
    return max(len(text.encode()) for text in texts)


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """Byte-level vocabularies write each byte as one printable character: printable Latin-1 as
    itself, the others as U+0100 onwards, in order (as published with GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = sorted(set(range(0x100)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}


@functools.cache
def _char_alphabet() -> dict[int, str]:
    return {byte: char for char, byte in byte_alphabet().items()}
