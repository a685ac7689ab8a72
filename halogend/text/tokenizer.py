"""Text to token ids and back, one class for every kind of checkpoint.

A GGUF file is read exactly as llama.cpp reads it, a Hugging Face directory as `transformers` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from halogend.checkpoint.errors import TOKENIZER_INVALID, CheckpointError
from halogend.checkpoint.gguf import GgufHeader
from halogend.checkpoint.tokenizer_files import TextFiles
from halogend.text import gguf_vocabulary, sentencepiece, tekken, tokenizer_json
from halogend.text.control_tokens import ControlTokens
from halogend.text.lexicon import Encoder, Lexicon, Part
from halogend.text.merging import CutEncoder, lexicon_of
from halogend.text.vocabulary import Vocabulary

_PANIC = "PanicException"  # how the `tokenizers` package fails on what it did not foresee; no Exception
T = TypeVar("T")

__all__ = ["Part", "Tokenizer", "UnencodableError"]


class UnencodableError(Exception):
    """The `tokenizers` package broke on one text, which says nothing of the next: a pattern of the vocabulary
    tries too many ways to match it."""


class Tokenizer:
    """Immutable after construction, and safe to use from several threads."""

    def __init__(self, lexicon: Lexicon, encoder: Encoder) -> None:
        self.lexicon = lexicon
        self.control = ControlTokens(lexicon.control)
        self._encoder = encoder

    @classmethod
    def from_header(cls, header: GgufHeader) -> Tokenizer:
        """Of a GGUF file. Takes a second or so of CPU for a large vocabulary. Raises CheckpointError
        naming the key at fault."""
        vocabulary = gguf_vocabulary.read_vocabulary(header)
        try:
            return _guarded(header.path, lambda: cls._of(vocabulary, chat_prefix=True))
        except CheckpointError as error:
            raise gguf_vocabulary.unknown_merge(header, vocabulary) or error from error.__cause__

    @classmethod
    def from_files(cls, files: TextFiles) -> Tokenizer:
        """Of a Hugging Face directory. Takes a second or so of CPU for a large vocabulary. Raises
        CheckpointError naming the file and the key at fault."""
        if files.vocabulary.name == "tokenizer.json":
            return _guarded(files.vocabulary, lambda: cls(*tokenizer_json.build(files)))
        read = tekken.read_vocabulary if files.vocabulary.name == "tekken.json" else sentencepiece.read_vocabulary
        vocabulary = _guarded(files.vocabulary, lambda: read(files))
        return _guarded(files.vocabulary, lambda: cls._of(vocabulary, chat_prefix=False))

    @classmethod
    def _of(cls, vocabulary: Vocabulary, *, chat_prefix: bool) -> Tokenizer:
        """The encoder first: to build it takes twice what it keeps, and the lexicon is not there yet."""
        encoder = CutEncoder(vocabulary)
        return cls(lexicon_of(vocabulary, chat_prefix=chat_prefix), encoder)

    @property
    def vocab_size(self) -> int:
        return len(self.lexicon.pieces)

    @property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends a generation."""
        return self.lexicon.end_ids

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for in output; empty for control tokens, and for the rows by
        which an embedding may be larger than the vocabulary."""
        return self.lexicon.pieces[token] if token < len(self.lexicon.pieces) else b""

    def least_tokens(self, text_bytes: int) -> int:
        """No text of so many UTF-8 bytes can be encoded into fewer tokens: every byte of it is in some
        token's text. 0 where that need not be so."""
        return 0 if self.lexicon.absorbs_spaces else self._least(text_bytes)

    def least_tokens_of(self, texts: Iterable[str]) -> int:
        """The same of these texts, which are looked at."""
        if self.lexicon.absorbs_spaces:
            texts = ("".join(text.split()) for text in texts)
        return self._least(sum(len(text.encode()) for text in texts))

    def _least(self, text_bytes: int) -> int:
        longest = self.lexicon.longest_bytes
        return -(-text_bytes // longest) if longest else 0

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """`add_special`: begin (and end) with BOS (EOS) where the model wants it. `parse_special`:
        control tokens written in `text` become those tokens; otherwise they are plain text. Raises
        UnencodableError."""
        ids = _encoded(lambda: self._encoder.encode(text, parse_special=parse_special))
        return [*self.lexicon.prefix, *ids, *self.lexicon.suffix] if add_special else ids

    def encode_prompt(self, parts: Sequence[Part], whole: str | None = None) -> list[int]:
        """Ids to generate from: texts as plain text and ids as they are, after a BOS where the model
        wants one and the parts do not begin with it already. No EOS: the prompt goes on.

        `whole`, where it is given, is the text that the parts were cut from, all control tokens in it
        meant as such: some vocabularies encode a text a little differently from its parts.

        Raises UnencodableError.
        """
        return self._after_prefix(_encoded(lambda: self._encoder.encode_parts(parts, whole)))

    def encode_chat(self, parts: Sequence[Part], whole: str | None = None) -> list[int]:
        """As `encode_prompt`, for what a chat template wrote. A directory's template writes BOS itself.
        Raises UnencodableError."""
        ids = _encoded(lambda: self._encoder.encode_parts(parts, whole))
        return self._after_prefix(ids) if self.lexicon.chat_prefix else ids

    def _after_prefix(self, ids: list[int]) -> list[int]:
        prefix = list(self.lexicon.prefix)
        return ids if ids[: len(prefix)] == prefix else [*prefix, *ids]


def _encoded(encode: Callable[[], list[int]]) -> list[int]:
    try:
        return encode()
    except BaseException as error:  # the package's panic is no Exception, and its class has no public name
        if not _is_panic(error):
            raise
        raise UnencodableError(str(error)) from error


def _is_panic(error: BaseException) -> bool:
    return type(error).__name__ == _PANIC


def _guarded(path: Path, build: Callable[[], T]) -> T:
    try:
        return build()
    except CheckpointError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_panic(error):
            raise
        raise CheckpointError(TOKENIZER_INVALID, f"{path}: its tokenizer is broken: {error!s:.200}") from error
