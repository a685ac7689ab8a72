"""An encoder for a vocabulary whose control tokens are found here and not by the `tokenizers` package:
a text is first cut at the control tokens that may be parsed, and what lies between is encoded by an
engine that knows none. So one instance serves both user text, which never parses them, and templates.

That is how llama.cpp does it. GGUF files, tekken and sentencepiece vocabularies come this way.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import overload

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from halogend.text import pieces
from halogend.text.control_tokens import ControlTokens
from halogend.text.lexicon import Lexicon, Part
from halogend.text.pretokenize import Cutting
from halogend.text.vocabulary import TokenType, Vocabulary

MAX_PIECE_LENGTH = 4096  # every way to split one is tried: a long one would take for ever
_SPACES = " \t\n\v\f\r"


class CutEncoder:
    """Implements `lexicon.Encoder`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Takes a second or so of CPU for a large vocabulary. The package raises bare Exception for a
        merge that it cannot use, ValueError is raised for what is no byte token."""
        self._control = ControlTokens(vocabulary.control)
        self._strips_right = vocabulary.strips_right
        self._normalise = vocabulary.normalise
        cutting = vocabulary.cutting
        self._engine = _build_spm(vocabulary) if cutting is None else _build_bpe(vocabulary, cutting)

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        return self.encode_parts(self._control.split(text) if parse_special else [text], None)

    def encode_parts(self, parts: Sequence[Part], whole: str | None) -> list[int]:
        ids: list[int] = []
        for index, part in enumerate(parts):
            if isinstance(part, int):
                ids.append(part)
                continue
            text = part.lstrip(_SPACES) if index and parts[index - 1] in self._strips_right else part
            if self._normalise is not None:
                text = self._normalise(text)
            if text:
                # The batch call, unlike the single one, lets other threads run meanwhile.
                ids.extend(self._engine.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        return ids


def lexicon_of(vocabulary: Vocabulary, *, chat_prefix: bool) -> Lexicon:
    """Raises ValueError for what is no byte token."""
    named = {"bos_token": vocabulary.bos_id, "eos_token": vocabulary.eos_id, "unk_token": vocabulary.unknown_id}
    bos = (vocabulary.bos_id,) if vocabulary.add_bos and vocabulary.bos_id is not None else ()
    eos = (vocabulary.eos_id,) if vocabulary.add_eos and vocabulary.eos_id is not None else ()
    is_byte_level = vocabulary.cutting is not None
    token_pieces = tuple(
        _piece(text, kind, is_byte_level=is_byte_level, keeps_spaces=vocabulary.normalise is None)
        for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
    )
    covers = is_byte_level or vocabulary.types.count(TokenType.BYTE) == 256  # nothing of a text vanishes
    return Lexicon(
        tokens=vocabulary.tokens,
        pieces=token_pieces,
        control=vocabulary.control,
        end_ids=vocabulary.end_ids,
        named={name: "" if token is None else vocabulary.tokens[token] for name, token in named.items()},
        prefix=bos,
        suffix=eos,
        chat_prefix=chat_prefix,
        longest_bytes=pieces.longest_bytes(vocabulary.tokens, token_pieces, is_byte_level=is_byte_level)
        if covers
        else 0,
        absorbs_spaces=bool(vocabulary.strips_right) or vocabulary.drops_spaces,
    )


def _piece(text: str, kind: TokenType, *, is_byte_level: bool, keeps_spaces: bool) -> bytes:
    match kind:
        case TokenType.NORMAL:
            return pieces.byte_level(text) if is_byte_level else pieces.spaced(text)
        case TokenType.USER_DEFINED:
            return text.encode() if keeps_spaces else pieces.spaced(text)
        case TokenType.BYTE:
            return bytes([pieces.byte_of(text)])
        case _:
            return b""


def _build_bpe(vocabulary: Vocabulary, cutting: Cutting) -> tokenizers.Tokenizer:
    control = vocabulary.control
    merges = [
        each for each in vocabulary.merges if each[0] + each[1] not in control and control.keys().isdisjoint(each)
    ]
    engine = tokenizers.Tokenizer(
        models.BPE(vocab=_hidden(vocabulary), merges=merges, ignore_merges=cutting.ignore_merges)
    )
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated") for pattern in cutting.patterns
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    engine.pre_tokenizer = pre_tokenizers.Sequence(steps)
    engine.decoder = decoders.ByteLevel()
    _add_user_defined(engine, vocabulary)
    return engine


def _build_spm(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """A sentencepiece vocabulary as byte-pair merges: any two pieces whose join is a piece may merge,
    the piece with the best score first."""
    ids, unknown = _hidden(vocabulary), vocabulary.unknown_id
    engine = tokenizers.Tokenizer(
        models.BPE(
            vocab=ids,
            merges=_merges_from_scores(vocabulary),
            unk_token=next((text for text, index in ids.items() if index == unknown), None),
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    if vocabulary.normalise is None:
        steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", pieces.SPACE)]
        if vocabulary.add_space_prefix:
            steps.insert(0, normalizers.Prepend(pieces.SPACE))
        engine.normalizer = normalizers.Sequence(steps)
    _add_user_defined(engine, vocabulary)
    return engine


def _hidden(vocabulary: Vocabulary) -> dict[str, int]:
    """Ids by text, with control tokens under names that hold a space: no text that reaches the model does,
    so plain text cannot become one."""
    return {
        f" {text}" if kind in (TokenType.CONTROL, TokenType.UNKNOWN) else text: index
        for index, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
    }


class _Merges(Sequence[tuple[str, str]]):
    """Pairs of pieces, the best first, each made when it is asked for: half a million of them, as objects that all
    exist at once, are 30 MiB of the most that a text process needs."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        """`scores` of all pieces that are made of others or make them, by their texts."""
        self._joins = sorted(scores, key=scores.__getitem__, reverse=True)
        self._number, self._cut = array("I"), array("H")  # of the join, and how long its left half is
        for number, text in enumerate(self._joins):
            for cut in range(1, len(text)):
                if text[:cut] in scores and text[cut:] in scores:
                    self._number.append(number)
                    self._cut.append(cut)

    def __len__(self) -> int:
        return len(self._cut)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...

    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        text, cut = self._joins[self._number[index]], self._cut[index]
        return text[:cut], text[cut:]


def _merges_from_scores(vocabulary: Vocabulary) -> _Merges:
    mergeable = {
        text: score
        for text, kind, score in zip(vocabulary.tokens, vocabulary.types, vocabulary.scores, strict=True)
        if kind in (TokenType.NORMAL, TokenType.USER_DEFINED)
    }
    longest = max(map(len, mergeable), default=0)
    if longest > MAX_PIECE_LENGTH:
        raise ValueError(f"a piece has {longest} characters, more than {MAX_PIECE_LENGTH}")
    return _Merges(mergeable)


def _add_user_defined(engine: tokenizers.Tokenizer, vocabulary: Vocabulary) -> None:
    """User-defined pieces are matched in the raw text, wherever it comes from."""
    engine.add_tokens(
        [
            tokenizers.AddedToken(text, special=False, normalized=False, rstrip=index in vocabulary.strips_right)
            for index, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
            if kind is TokenType.USER_DEFINED and text
        ]
    )
