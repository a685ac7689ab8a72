"""A vocabulary from a sentencepiece model (`tokenizer.model`) of the BPE kind.

The file is a protocol buffer of which a few fields are wanted, so it is walked over here: every length
is checked against what is left before it is used. Field numbers are those of sentencepiece's
sentencepiece_model.proto.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from halogend.checkpoint.errors import TOKENIZER_INVALID, TRUNCATED, CheckpointError, shown
from halogend.checkpoint.json_object import MAX_VOCABULARY_BYTES
from halogend.checkpoint.tokenizer_files import AddedToken, TextFiles, invalid
from halogend.text import pieces
from halogend.text.vocabulary import TokenType, Vocabulary, check_surroundings, ends_below, named_ends

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # of ModelProto
_TEXT, _SCORE, _TYPE = 1, 2, 3  # of SentencePiece
# Of TrainerSpec and NormalizerSpec: the part's field and its own, to the name below.
_SETTINGS = {
    (_TRAINER, 3): "kind",
    (_TRAINER, 40): "unknown_id",
    (_TRAINER, 41): "bos_id",
    (_TRAINER, 42): "eos_id",
    (_NORMALIZER, 2): "charsmap",
    (_NORMALIZER, 3): "dummy_prefix",
    (_NORMALIZER, 4): "collapse_spaces",
}
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_SPACES = re.compile(" +")
Value = int | bytes


@dataclass(slots=True)
class _Trained:
    """What of the trainer's and the normaliser's settings is wanted, with their defaults."""

    kind: int = 1
    unknown_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    charsmap: bytes = b""
    dummy_prefix: int = 1
    collapse_spaces: int = 1


def read_vocabulary(files: TextFiles) -> Vocabulary:
    """Raises CheckpointError."""
    path = files.vocabulary
    tokens, scores, types, trained = _read_model(path, files.read_vocabulary(MAX_VOCABULARY_BYTES, TOKENIZER_INVALID))
    if _KINDS.get(trained.kind) != "bpe":
        kind = _KINDS.get(trained.kind, str(trained.kind))
        raise CheckpointError(
            TOKENIZER_INVALID, f"{path}: is a sentencepiece model of the kind {kind!r}; only 'bpe' is supported"
        )
    if trained.charsmap:
        raise CheckpointError(
            TOKENIZER_INVALID,
            f"{path}: normalises characters ('precompiled_charsmap'), which is not supported; a tokenizer.json is",
        )
    _extend(files, tokens, scores, types)
    if files.embedding_rows is not None and len(tokens) > files.embedding_rows:
        raise CheckpointError(
            TOKENIZER_INVALID,
            f"{path}: has {len(tokens)} tokens, but key 'vocab_size' of config.json gives the embedding"
            f" {files.embedding_rows} rows",
        )
    ids = {text: index for index, text in enumerate(tokens) if types[index] is TokenType.CONTROL}
    bos, eos = _named(files, ids, "bos_token", trained.bos_id), _named(files, ids, "eos_token", trained.eos_id)
    check_surroundings(files, set(tokens))
    ends = ends_below(files.end_ids, len(tokens)) | ({eos} if eos is not None else set())
    return Vocabulary(
        tokens=tuple(tokens),
        types=tuple(types),
        end_ids=frozenset(ends | named_ends(ids)),
        scores=tuple(scores),
        bos_id=bos,
        eos_id=eos,
        unknown_id=trained.unknown_id if 0 <= trained.unknown_id < len(tokens) else None,
        add_bos=files.add_bos is not False,
        add_eos=files.add_eos is True,
        strips_right=frozenset(token for token, added in files.added.items() if added.flags.get("rstrip", False)),
        drops_spaces=bool(trained.collapse_spaces),
        normalise=_normaliser(trained),
    )


def _normaliser(trained: _Trained) -> Callable[[str], str]:
    """What sentencepiece does to a text before anything is looked for in it."""

    def normalise(text: str) -> str:
        if trained.collapse_spaces:
            text = _SPACES.sub(" ", text).strip(" ")
        if trained.dummy_prefix and text:
            text = " " + text
        text = text.replace(" ", pieces.SPACE)
        return text.rstrip(pieces.SPACE) if trained.collapse_spaces else text

    return normalise


def _named(files: TextFiles, ids: dict[str, int], name: str, trained: int) -> int | None:
    token = files.special.get(name)
    if token is not None and token.content in ids:
        return ids[token.content]
    return trained if trained in ids.values() else None


def _extend(files: TextFiles, tokens: list[str], scores: list[float], types: list[TokenType]) -> None:
    """Added tokens of the directory: names and kinds for ids that the model has, and ids after its own."""
    path = files.directory / "tokenizer_config.json"
    known = set(tokens)
    for index, token in sorted(files.added.items()):
        if files.embedding_rows is not None and index >= files.embedding_rows:
            continue  # no embedding: it can stand in no text
        key = f"added_tokens_decoder.{index}"
        if index > len(tokens):
            raise invalid(path, key, f"leaves out ids from {len(tokens)}")
        if index == len(tokens):
            if token.content in known:
                raise invalid(path, key, f"is {shown(token.content)}, which another id stands for as well")
            tokens.append(token.content)
            known.add(token.content)
            scores.append(0.0)
            types.append(_added_type(token))
        elif tokens[index] == token.content and types[index] is not TokenType.UNKNOWN:
            types[index] = _added_type(token) if types[index] is TokenType.NORMAL else types[index]


def _added_type(token: AddedToken) -> TokenType:
    return TokenType.CONTROL if token.flags.get("special", False) else TokenType.USER_DEFINED


# --- the file -------------------------------------------------------------------------------------


def _read_model(path: Path, data: bytes) -> tuple[list[str], list[float], list[TokenType], _Trained]:
    tokens: list[str] = []
    scores: list[float] = []
    types: list[TokenType] = []
    trained = _Trained()
    for number, value in _fields(path, data):
        if isinstance(value, int):
            continue
        if number == _PIECES:
            text, score, kind = _piece(path, len(tokens), value)
            tokens.append(text)
            scores.append(score)
            types.append(kind)
        elif number in (_TRAINER, _NORMALIZER):
            _take_settings(path, number, value, trained)
    if not tokens:
        raise CheckpointError(TOKENIZER_INVALID, f"{path}: is no sentencepiece model: it holds no pieces")
    _check_unique(path, tokens)
    return tokens, scores, types, trained


def _check_unique(path: Path, tokens: list[str]) -> None:
    seen: set[str] = set()
    for text in tokens:
        if text in seen:
            raise CheckpointError(TOKENIZER_INVALID, f"{path}: piece {shown(text)} is there twice")
        seen.add(text)


def _piece(path: Path, index: int, data: bytes) -> tuple[str, float, TokenType]:
    text, score, kind = "", 0.0, TokenType.NORMAL
    try:
        for number, value in _fields(path, data):
            if number == _TEXT and isinstance(value, bytes):
                text = value.decode()
            elif number == _SCORE and isinstance(value, bytes):
                (score,) = struct.unpack("<f", value)
            elif number == _TYPE and isinstance(value, int):
                kind = TokenType(value)
    except (UnicodeDecodeError, ValueError, struct.error) as error:
        raise CheckpointError(TOKENIZER_INVALID, f"{path}: piece {index} is broken: {error}") from error
    if score != score:  # noqa: PLR0124 - only NaN differs from itself
        raise CheckpointError(TOKENIZER_INVALID, f"{path}: piece {index} has a score that is no number")
    return text, score, kind


def _take_settings(path: Path, part: int, data: bytes, trained: _Trained) -> None:
    for number, value in _fields(path, data):
        name = _SETTINGS.get((part, number))
        if name is not None and isinstance(value, bytes) == (name == "charsmap"):
            setattr(trained, name, value if isinstance(value, bytes) else _signed(value))


def _signed(value: int) -> int:
    """An int32 in a varint: negative numbers take all ten bytes."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _fields(path: Path, data: bytes) -> Iterator[tuple[int, Value]]:
    """(number, value) of each field of a message: whole numbers, or the bytes of anything else."""
    position = 0
    while position < len(data):
        tag, position = _varint(path, data, position)
        wire = tag & 7
        if wire == _VARINT:
            value, position = _varint(path, data, position)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            length, position = _varint(path, data, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise CheckpointError(
                TOKENIZER_INVALID, f"{path}: is no sentencepiece model: a field has the wire type {wire}"
            )
        if length > len(data) - position:
            raise _truncated(path, f"{length} bytes wanted, {len(data) - position} left")
        yield tag >> 3, data[position : position + length]
        position += length


def _varint(path: Path, data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise _truncated(path, "it ends inside a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise CheckpointError(TOKENIZER_INVALID, f"{path}: is no sentencepiece model: a number has over ten bytes")


def _truncated(path: Path, what: str) -> CheckpointError:
    return CheckpointError(TRUNCATED, f"{path}: the sentencepiece model is truncated: {what}")
