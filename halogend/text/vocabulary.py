"""A model's tokens and what each is for, from a GGUF header."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from halogend.checkpoint import keys
from halogend.checkpoint.errors import TOKENIZER_INVALID, CheckpointError
from halogend.checkpoint.gguf import GgufHeader

_MODELS = {"gpt2": "bpe", "llama": "spm"}

# Tokens that end a generation by their name, as llama.cpp has them: many files name no end-of-turn
# token, and some give it the type of an ordinary one.
_END_NAMES = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<turn|>",
        "<|tool_response>",
        "<｜end▁of▁sentence｜>",  # noqa: RUF001 - the token is spelt with full-width bars
    }
)
# The padding, repository and file separators of fill-in-the-middle formats end a generation as well.
_SEPARATOR_NAMES = (
    ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    ("<|file_sep|>",),
)
_END_OF_TURN_NAMES = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<EOT>", "_<EOT>")


class TokenType(enum.IntEnum):
    """The types of GGUF's `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`types` has the overrides by name applied. `control` maps the text of each control token to
    its id; `end_ids` are all tokens that end a generation."""

    kind: str  # bpe | spm
    pre: str
    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    scores: tuple[float, ...]  # spm only; the higher, the sooner a piece is made
    merges: tuple[str, ...]  # bpe only
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    control: dict[str, int]
    end_ids: frozenset[int]


def read_vocabulary(header: GgufHeader) -> Vocabulary:
    """Raises CheckpointError naming the key for a tokenizer that is missing, broken or of a kind
    that is not supported."""
    model = keys.text(header, "tokenizer.ggml.model")
    kind = _MODELS.get(model)
    if kind is None:
        known = ", ".join(sorted(_MODELS))
        raise CheckpointError(
            TOKENIZER_INVALID,
            f"{header.path}: metadata key 'tokenizer.ggml.model' is {model!r}; supported are {known}",
        )
    pre = keys.text(header, "tokenizer.ggml.pre", "default")
    tokens = tuple(header.strings("tokenizer.ggml.tokens"))
    if not tokens:
        raise keys.invalid(header, "tokenizer.ggml.tokens", "is empty")
    ids = {text: index for index, text in enumerate(tokens)}
    eos_id = _special_id(header, "eos", tokens)
    eot_id = _special_id(header, "eot", tokens)
    if eot_id is None:
        eot_id = next((ids[name] for name in _END_OF_TURN_NAMES if name in ids), None)
    ends = {ids[name] for name in _END_NAMES if name in ids}
    ends |= {ids[found] for names in _SEPARATOR_NAMES if (found := next((n for n in names if n in ids), None))}
    types = _types(header, len(tokens), ends)
    ends |= {index for index in (eos_id, eot_id, _special_id(header, "eom", tokens)) if index is not None}
    return Vocabulary(
        kind=kind,
        pre=pre,
        tokens=tokens,
        types=types,
        scores=_scores(header, len(tokens)) if kind == "spm" else (),
        merges=tuple(header.strings("tokenizer.ggml.merges")) if kind == "bpe" else (),
        bos_id=_special_id(header, "bos", tokens),
        eos_id=eos_id,
        unknown_id=_special_id(header, "unknown", tokens),
        add_bos=keys.flag(header, "tokenizer.ggml.add_bos_token", default=kind == "spm" or pre == "llama-bpe"),
        add_eos=keys.flag(header, "tokenizer.ggml.add_eos_token", default=False),
        add_space_prefix=keys.flag(header, "tokenizer.ggml.add_space_prefix", default=kind == "spm"),
        control={
            text: index
            for index, (text, kind_) in enumerate(zip(tokens, types, strict=True))
            if kind_ in (TokenType.CONTROL, TokenType.UNKNOWN) and text
        },
        end_ids=frozenset(ends),
    )


def _special_id(header: GgufHeader, name: str, tokens: tuple[str, ...]) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    if not header.has(key):
        return None
    return keys.integer(header, key, least=0, most=len(tokens) - 1)


def _types(header: GgufHeader, count: int, ends: set[int]) -> tuple[TokenType, ...]:
    key = "tokenizer.ggml.token_type"
    if not header.has(key):
        return tuple(TokenType.CONTROL if index in ends else TokenType.NORMAL for index in range(count))
    numbers = header.numbers(key)
    if len(numbers) != count:
        raise keys.invalid(header, key, f"has {len(numbers)} elements for {count} tokens")
    try:
        types = [_TYPE_OF[int(number)] for number in numbers]
    except (KeyError, ValueError, OverflowError) as error:
        raise keys.invalid(header, key, f"has an unknown type: {error}") from error
    for index in ends:
        types[index] = TokenType.CONTROL
    return tuple(types)


_TYPE_OF = {0: TokenType.NORMAL, **{int(kind): kind for kind in TokenType}}


def _scores(header: GgufHeader, count: int) -> tuple[float, ...]:
    key = "tokenizer.ggml.scores"
    scores = header.numbers(key)
    if len(scores) != count:
        raise keys.invalid(header, key, f"has {len(scores)} elements for {count} tokens")
    if any(score != score for score in scores):  # noqa: PLR0124 - only NaN differs from itself
        raise keys.invalid(header, key, "holds a score that is no number")
    return scores
