"""A model's tokens, what each is for and how words are made of them, whatever file says so."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from halogend.text.pretokenize import Cutting

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


class TokenType(enum.IntEnum):
    """The types of a sentencepiece model, which GGUF's `tokenizer.ggml.token_type` has taken over."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, with what tokenising needs of them. Control tokens (and the unknown one) are found
    in texts by name, and are never made of other tokens.

    `cutting` and `merges` are a byte-level vocabulary's; without a `cutting` it is sentencepiece: pieces
    are made by their `scores`, the highest first, and bytes stand in for what no piece covers.
    """

    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    end_ids: frozenset[int]
    cutting: Cutting | None = None
    merges: tuple[tuple[str, str], ...] = ()
    scores: tuple[float, ...] = ()
    bos_id: int | None = None
    eos_id: int | None = None
    unknown_id: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    strips_right: frozenset[int] = frozenset()  # these take the white space that follows them
    add_space_prefix: bool = False  # sentencepiece only, as are those below
    drops_spaces: bool = False
    normalise: Callable[[str], str] | None = None  # done to a text first, in place of the prefix

    @property
    def control(self) -> dict[str, int]:
        return {
            text: index
            for index, (text, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in (TokenType.CONTROL, TokenType.UNKNOWN) and text
        }


def named_ends(ids: Mapping[str, int]) -> set[int]:
    """The tokens that end a generation by their name alone."""
    ends = {ids[name] for name in _END_NAMES if name in ids}
    return ends | {ids[found] for names in _SEPARATOR_NAMES if (found := next((n for n in names if n in ids), None))}
