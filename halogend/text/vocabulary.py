"""A model's tokens, what each is for and how words are made of them, whatever file says so."""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

import structlog

from halogend.checkpoint.errors import shown
from halogend.checkpoint.tokenizer_files import TextFiles, invalid
from halogend.text.pretokenize import Cutting

log = structlog.get_logger(__name__)
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


_MOST_LOGGED = 8


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


def as_in(texts: Iterable[str]) -> Callable[[str], str]:
    """Gives each text as the object that is among `texts`, where one is equal: the halves of half a million merges are
    tokens themselves, and copies of them would take twice what all tokens do."""
    own = {text: text for text in texts}
    return lambda text: own.get(text, text)


def check_surroundings(files: TextFiles, known: Container[str]) -> None:
    """Raises CheckpointError where the directory's settings put a token before or behind every text that is
    none of the `known` ones."""
    for switch, name, is_on in (
        ("add_bos_token", "bos_token", files.add_bos),
        ("add_eos_token", "eos_token", files.add_eos),
    ):
        token = files.special.get(name)
        if is_on and token is not None and token.content not in known:
            what = f"is {shown(token.content)}, which {files.vocabulary.name} lacks, but {switch!r} is true"
            raise invalid(files.directory / "tokenizer_config.json", name, what)


def ends_below(ends: Iterable[int], size: int) -> set[int]:
    """Those of the directory's end tokens that there are. No model says another one, so it ends nothing."""
    beyond = sorted(token for token in ends if token >= size)
    if beyond:
        log.warning("end_tokens_beyond_vocabulary", tokens=beyond[:_MOST_LOGGED], count=len(beyond), vocab_size=size)
    return {token for token in ends if token < size}


def named_ends(ids: Mapping[str, int]) -> set[int]:
    """The tokens that end a generation by their name alone."""
    ends = {ids[name] for name in _END_NAMES if name in ids}
    return ends | {ids[found] for names in _SEPARATOR_NAMES if (found := next((n for n in names if n in ids), None))}
