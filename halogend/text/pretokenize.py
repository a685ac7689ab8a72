"""How byte-pair vocabularies cut text into words before merging, by GGUF's `tokenizer.ggml.pre`.

Each entry is a chain of patterns: every piece that one pattern leaves is cut by the next. The
patterns are those the vocabularies were trained with, as published with them, except where llama.cpp
deviates: a GGUF file is read as llama.cpp reads it (of `tekken` and `gpt-4o` it takes any letter
that is not a-z for upper case, and any that is not A-Z for lower).
"""

from __future__ import annotations

from dataclasses import dataclass

_SPACES = r"\s+(?!\S)|\s+"
_SHORT = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"  # I'm, you've, ...
_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"
_UPPER, _LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
_FALCON_MARKS = r"[\p{P}\$\+<=>\^~\|`]+"
# DeepSeek's: the letters that have a case, without Armenian and Georgian lower case and what Unicode took in later.
_NO_DEEPSEEK_LETTER = (
    r"\x{560}-\x{588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C8F}\x{2D00}-\x{2D2F}\x{A790}-\x{AB6F}"
    r"\x{10500}-\x{10C7F}\x{10D00}-\x{1189F}\x{16E40}-\x{16EFF}\x{1D400}-\x{1D7FF}\x{1DF00}-\x{1DFFF}"
)
_DEEPSEEK_LETTERS = rf"\s?(?:(?![{_NO_DEEPSEEK_LETTER}])[\p{{Lu}}\p{{Ll}}\p{{Lt}}])+"
_DEEPSEEK_MARKS = r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+"
_CJK = r"[\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+"


def _cl100k(digits: str, letters: str = r"\p{L}", not_marks: str = r"\s\p{L}\p{N}") -> str:
    """The family of patterns that began with OpenAI's cl100k."""
    return rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{digits}| ?[^{not_marks}]+[\r\n]*|\s*[\r\n]+|{_SPACES}"


def _cased(digits: str, short: str) -> str:
    """The family of patterns that began with OpenAI's o200k: a new word where a capital follows."""
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{short}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{short}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|{_SPACES}"
    )


@dataclass(frozen=True, slots=True)
class Cutting:
    """`ignore_merges`: a word that is a token stays whole, whatever the merges would give. `adds_bos`:
    a text begins with BOS unless the file says otherwise."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False


_LLAMA3 = Cutting((_cl100k(r"\p{N}{1,3}"),), ignore_merges=True, adds_bos=True)
_CL100K = Cutting((_cl100k(r"\p{N}{1,3}"),))
_QWEN2 = Cutting((_cl100k(r"\p{N}"),))
_GPT2_WORDS = Cutting((_GPT2,))
_GPT4O = Cutting((_cased(r"\p{N}{1,3}", f"(?:{_SHORT})?"),))
_SINGLE_DIGITS = Cutting((r"\p{N}", _GPT2))

CUTTINGS = {
    "a.x-4.0": _GPT2_WORDS,
    "chatglm-bpe": _CL100K,
    "codeshell": _SINGLE_DIGITS,
    "command-r": _SINGLE_DIGITS,
    "dbrx": _CL100K,
    "deepseek-coder": Cutting((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-llm": Cutting((r"[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_MARKS, r"\s+$", _CJK, r"\p{N}+")),
    "deepseek-r1-qwen": _QWEN2,
    "default": Cutting((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "exaone": _SINGLE_DIGITS,
    "exaone4": _GPT2_WORDS,
    "falcon": Cutting((_FALCON_MARKS, _GPT2, r"[0-9][0-9][0-9]")),
    "falcon-h1": _LLAMA3,
    "falcon3": _LLAMA3,
    "gigachat": _GPT2_WORDS,
    "glm4": Cutting(_CL100K.patterns, ignore_merges=True),
    "gpt-2": _GPT2_WORDS,
    "gpt-4o": _GPT4O,
    "hunyuan": _QWEN2,
    "jais": _GPT2_WORDS,
    "kanana2": _GPT4O,
    "kormo": _QWEN2,
    "lfm2": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "llama4": _GPT4O,
    "megrez": _QWEN2,
    "mellum": _GPT2_WORDS,
    "midm-2.0": _LLAMA3,
    "minerva-7b": _SINGLE_DIGITS,
    "mpt": _GPT2_WORDS,
    "olmo": _GPT2_WORDS,
    "phi-2": _GPT2_WORDS,
    "pixtral": _LLAMA3,
    "qwen2": _QWEN2,
    "qwen35": Cutting((_cl100k(r"\p{N}", r"\p{L}\p{M}", r"\s\p{L}\p{M}\p{N}"),)),
    "refact": _SINGLE_DIGITS,
    "smaug-bpe": _CL100K,
    "smollm": _SINGLE_DIGITS,
    "solar-open": _QWEN2,
    "stablelm2": _QWEN2,
    "starcoder": _SINGLE_DIGITS,
    "tekken": Cutting((_cased(r"\p{N}", ""),), ignore_merges=True, adds_bos=True),
    "trillion": _GPT2_WORDS,
}
