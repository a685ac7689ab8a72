"""What a tokenizer knows of its tokens, and how it is asked for ids: the two halves that every kind of
checkpoint provides in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Part = str | int  # text to encode, or a token id


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Tokens by id; an id that stands for nothing has an empty text.

    `pieces` are the bytes that each stands for in output, empty for control tokens. `control` maps the
    text of each control token to its id. `named` are special tokens by the names that templates use
    (`bos_token`). `prefix` and `suffix` are what the model wants around a text; `chat_prefix` says that it
    wants the prefix before a rendered chat too, where the template has not written it.

    `longest_bytes`: no token covers more bytes of a text; 0 where one may cover any number. With
    `absorbs_spaces` white space does not count: some tokens take all that stands beside them.
    """

    tokens: tuple[str, ...]
    pieces: tuple[bytes, ...]
    control: Mapping[str, int]
    end_ids: frozenset[int]
    named: Mapping[str, str]
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    chat_prefix: bool
    longest_bytes: int
    absorbs_spaces: bool = False


class Encoder(Protocol):
    """Immutable, and safe to use from several threads."""

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """`parse_special`: control tokens written in `text` become those tokens; otherwise they are
        plain text. Nothing is added before or after."""
        ...

    def encode_parts(self, parts: Sequence[Part], whole: str | None) -> list[int]:
        """Texts as plain text and ids as they are. `whole`, where it is given, is the text that the
        parts were cut from, all control tokens in it meant as such."""
        ...
