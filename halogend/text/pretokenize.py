"""How byte-pair vocabularies cut text into words before merging, by GGUF's `tokenizer.ggml.pre`.

Each entry is a chain of patterns: every piece that one pattern leaves is cut by the next. The
patterns are those the vocabularies were trained with, as published with them.
"""

from __future__ import annotations

from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Cutting:
    """`ignore_merges`: a word that is a token stays whole, whatever the merges would give."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False


CUTTINGS = {
    "default": Cutting((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": Cutting((_GPT2,)),
    "llama-bpe": Cutting((_LLAMA3,), ignore_merges=True),
    "smollm": Cutting((r"\p{N}", _GPT2)),
}
