"""Text to token ids and back, exactly as llama.cpp does it for the same file.

The merging is done by the `tokenizers` package. Control tokens are found here and not by it: a text
is first cut at the control tokens that may be parsed, and what lies between is encoded by a
tokenizer that knows none. So one instance serves both user text, which never parses them, and
templates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from halogend.checkpoint.errors import TOKENIZER_INVALID, CheckpointError
from halogend.checkpoint.gguf import GgufHeader
from halogend.text.control_tokens import ControlTokens
from halogend.text.pretokenize import CUTTINGS
from halogend.text.vocabulary import TokenType, Vocabulary, read_vocabulary

_SPACE = "▁"
Part = str | int  # text to encode, or a token id


class Tokenizer:
    """Immutable after construction, and safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary, engine: tokenizers.Tokenizer) -> None:
        self.vocabulary = vocabulary
        self.control = ControlTokens(vocabulary.control)
        self._engine = engine
        self._pieces = _pieces(vocabulary)
        self._longest_bytes = max(len(text.encode()) for text in vocabulary.tokens)  # never less than it covers
        self._covers_all_bytes = vocabulary.kind == "bpe" or vocabulary.types.count(TokenType.BYTE) == 256

    @classmethod
    def from_header(cls, header: GgufHeader) -> Tokenizer:
        """Takes a second or so of CPU for a large vocabulary. Raises CheckpointError naming the
        key at fault."""
        vocabulary = read_vocabulary(header)
        build = _build_bpe if vocabulary.kind == "bpe" else _build_spm
        if vocabulary.kind == "bpe" and vocabulary.pre not in CUTTINGS:
            known = ", ".join(sorted(CUTTINGS))
            raise CheckpointError(
                TOKENIZER_INVALID,
                f"{header.path}: metadata key 'tokenizer.ggml.pre' is {vocabulary.pre!r}; supported are {known}",
            )
        try:
            return cls(vocabulary, build(vocabulary))
        except Exception as error:  # the package raises bare Exception for a merge it cannot use
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(TOKENIZER_INVALID, f"{header.path}: its tokenizer is broken: {error}") from error

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    @property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends a generation."""
        return self.vocabulary.end_ids

    def token_text(self, token: int | None) -> str:
        """How a token is written in a template; empty for None."""
        return "" if token is None else self.vocabulary.tokens[token]

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for in output; empty for control tokens, and for the rows by
        which an embedding may be larger than the vocabulary."""
        return self._pieces[token] if token < len(self._pieces) else b""

    def least_tokens(self, text_bytes: int) -> int:
        """No text of so many UTF-8 bytes can be encoded into fewer tokens: every byte of it is in some
        token's text. 0 where the vocabulary lets unknown text vanish into one token."""
        return -(-text_bytes // max(self._longest_bytes, 1)) if self._covers_all_bytes else 0

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """`add_special`: begin (and end) with BOS (EOS) where the model wants it. `parse_special`:
        control tokens written in `text` become those tokens; otherwise they are plain text."""
        vocabulary = self.vocabulary
        ids = self._encode_parts(self.control.split(text) if parse_special else [text])
        if add_special and vocabulary.add_bos and vocabulary.bos_id is not None:
            ids.insert(0, vocabulary.bos_id)
        if add_special and vocabulary.add_eos and vocabulary.eos_id is not None:
            ids.append(vocabulary.eos_id)
        return ids

    def encode_prompt(self, parts: Sequence[Part]) -> list[int]:
        """Ids to generate from: texts as plain text and ids as they are, after a BOS where the model
        wants one and the parts do not begin with it already. No EOS: the prompt goes on."""
        bos = self.vocabulary.bos_id
        if self.vocabulary.add_bos and bos is not None and list(parts[:1]) != [bos]:
            parts = [bos, *parts]
        return self._encode_parts(parts)

    def _encode_parts(self, parts: Sequence[Part]) -> list[int]:
        ids: list[int] = []
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
            elif part:
                # The batch call, unlike the single one, lets other threads run meanwhile.
                ids.extend(self._engine.encode_batch_fast([part], add_special_tokens=False)[0].ids)
        return ids


def _build_bpe(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    cutting = CUTTINGS[vocabulary.pre]
    merges = [_halves(merge) for merge in vocabulary.merges]
    ids = {text: index for index, text in enumerate(vocabulary.tokens)}
    engine = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=cutting.ignore_merges))
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated") for pattern in cutting.patterns
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    engine.pre_tokenizer = pre_tokenizers.Sequence(steps)
    engine.decoder = decoders.ByteLevel()
    _add_user_defined(engine, vocabulary)
    return engine


def _halves(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _build_spm(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """A sentencepiece vocabulary as byte-pair merges: any two pieces whose join is a piece may merge,
    the piece with the best score first."""
    ids = {text: index for index, text in enumerate(vocabulary.tokens)}
    unknown = vocabulary.unknown_id
    engine = tokenizers.Tokenizer(
        models.BPE(
            vocab=ids,
            merges=_merges_from_scores(vocabulary),
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(_SPACE)] if vocabulary.add_space_prefix else []
    engine.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    _add_user_defined(engine, vocabulary)
    return engine


def _merges_from_scores(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    mergeable = {
        text: score
        for text, kind, score in zip(vocabulary.tokens, vocabulary.types, vocabulary.scores, strict=True)
        if kind in (TokenType.NORMAL, TokenType.USER_DEFINED)
    }
    best_first = sorted(mergeable, key=mergeable.__getitem__, reverse=True)
    return [
        (left, right)
        for text in best_first
        for cut in range(1, len(text))
        if (left := text[:cut]) in mergeable and (right := text[cut:]) in mergeable
    ]


def _add_user_defined(engine: tokenizers.Tokenizer, vocabulary: Vocabulary) -> None:
    """User-defined pieces are matched in the raw text, wherever it comes from."""
    engine.add_tokens(
        [
            tokenizers.AddedToken(text, special=False, normalized=False)
            for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
            if kind is TokenType.USER_DEFINED and text
        ]
    )


def _pieces(vocabulary: Vocabulary) -> tuple[bytes, ...]:
    plain: Callable[[str], bytes] = _byte_level_decoder() if vocabulary.kind == "bpe" else _spm_bytes
    return tuple(
        plain(text) if kind is TokenType.NORMAL else _special_piece(text, kind)
        for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
    )


def _special_piece(text: str, kind: TokenType) -> bytes:
    if kind is TokenType.USER_DEFINED:
        return text.encode()
    if kind is TokenType.BYTE:
        return bytes([int(text[3:5], 16)])
    return b""


def _spm_bytes(text: str) -> bytes:
    return text.replace(_SPACE, " ").encode()


def _byte_level_decoder() -> Callable[[str], bytes]:
    """Byte-level vocabularies write each byte as one printable character: printable Latin-1 as
    itself, the others as U+0100 onwards, in order (as published with GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = sorted(set(range(0x100)) - set(printable))
    to_byte = {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}

    def decode(text: str) -> bytes:
        try:
            return bytes([to_byte[char] for char in text])
        except KeyError:  # a piece that is not byte-level stands for itself
            return text.encode()

    return decode
