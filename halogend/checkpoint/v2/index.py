"""The metadata block: JSON that is read strictly, and written in one way.

What is checked here is form: keys, types, ranges. Whether entries can lie where they say is of
`placing`, whether they make a model of `weights`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from halogend.checkpoint.errors import CheckpointError, shown
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.json_object import parse_json_object
from halogend.checkpoint.plain_types import PLAIN_TYPES
from halogend.checkpoint.v2.entries import Entry, Shard
from halogend.checkpoint.v2.layout import planes, planes_bytes
from halogend.checkpoint.v2.rules import broken

CHUNK_BYTES: Literal[8388608] = 8388608
MOST_PARTS = 99_999
_MOST_QUOTED = 200  # characters
_LEAST_VALUE_BYTES, _FEW_VALUES = 12, 1 << 16  # an index has about 18 bytes a value
NO_DIGEST = "0" * 64  # stands for one that is not known yet
Quantisation = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4"]
TextKind = Literal["gguf", "files"]

_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_T = TypeVar("_T")


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that was converted. `name` is without its folder; `sha256` is of all its bytes."""

    name: str
    bytes: _Size
    sha256: _Digest


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was converted. `quantisation` is how its matrices were stored."""

    format: str
    quantisation: str
    files: tuple[SourceFile, ...]


class _Shard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    axis: Literal[0, 1] | None
    unit: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry as it is written."""

    name: str
    dtype: str
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(min_length=1, max_length=2)]
    layout: str
    block: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
    offset: _Size
    length: _Size
    part: Annotated[int, msgspec.Meta(ge=0, lt=MOST_PARTS)]
    shard: _Shard
    sha256: _Digest


class _Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: TextKind


class _Chunks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bytes: Literal[8388608]
    parts: Annotated[tuple[tuple[_Digest, ...], ...], msgspec.Meta(max_length=MOST_PARTS)]


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: Geometry
    text: _Text
    quantisation: Quantisation
    producer: str
    source: Source
    dropped: tuple[str, ...]
    tensors: tuple[_Row, ...]
    chunks: _Chunks


class PartMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a part says of itself: the digest of its set's index, its number from 0, how many there are."""

    set: _Digest
    part: Annotated[int, msgspec.Meta(ge=0, lt=MOST_PARTS)]
    of: Annotated[int, msgspec.Meta(ge=1, le=MOST_PARTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """`dropped` are names of the source's tensors that no model needs. `chunks[i]` are the digests of
    each CHUNK_BYTES of file i from its data start on, the last one shorter."""

    model: Geometry
    text: TextKind
    quantisation: Quantisation
    producer: str
    source: Source
    dropped: tuple[str, ...]
    entries: tuple[Entry, ...]
    chunks: tuple[tuple[str, ...], ...]


def encode_metadata(metadata: Metadata) -> bytes:
    document = _Document(
        model=metadata.model,
        text=_Text(kind=metadata.text),
        quantisation=metadata.quantisation,
        producer=metadata.producer,
        source=metadata.source,
        dropped=metadata.dropped,
        tensors=tuple(map(_row, metadata.entries)),
        chunks=_Chunks(bytes=CHUNK_BYTES, parts=metadata.chunks),
    )
    return msgspec.json.encode(document)


def decode_metadata(raw: bytes, path: Path) -> Metadata:
    """Raises CheckpointError: rules V2-14, V2-15 and V2-18 to V2-20."""
    given = _object(raw, path)
    document = _converted(given, _Document, path)
    if not _is_known(given["model"], document.model):
        raise broken("V2-15", path, "the metadata's key 'model' has a key that no geometry has")
    return Metadata(
        model=document.model,
        text=document.text.kind,
        quantisation=document.quantisation,
        producer=document.producer,
        source=document.source,
        dropped=document.dropped,
        entries=tuple(_entry(row, path) for row in document.tensors),
        chunks=document.chunks.parts,
    )


def encode_part(part: PartMetadata) -> bytes:
    return msgspec.json.encode(part)


def decode_part(raw: bytes, path: Path) -> PartMetadata:
    """Raises CheckpointError."""
    return _converted(_object(raw, path), PartMetadata, path)


def set_digest(entries: Sequence[Entry]) -> str:
    """Of the index, by which parts know their manifest: two sets of the same bytes are the same set."""
    return hashlib.sha256(msgspec.json.encode(tuple(map(_row, entries)))).hexdigest()


def _object(raw: bytes, path: Path) -> dict[str, Any]:
    """Refuses first what would take many times its bytes in memory: 64 MiB of `{},` are 2 GB."""
    values = sum(map(raw.count, (b",", b"{", b"[")))
    if values > _FEW_VALUES + len(raw) // _LEAST_VALUE_BYTES:
        raise broken("V2-14", path, f"the metadata has {values} values in {len(raw)} bytes, more than any index")
    try:
        return parse_json_object(raw, "the metadata")
    except CheckpointError as error:
        raise broken("V2-14", path, error.message) from error


def _converted(given: dict[str, Any], kind: type[_T], path: Path) -> _T:
    try:
        return msgspec.convert(given, kind)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise broken("V2-15", path, f"the metadata: {_on_one_line(str(error))}") from error


def _is_known(given: Any, model: Geometry) -> bool:
    try:
        return _has_no_more(given, json.loads(msgspec.json.encode(model)))
    except RecursionError:
        return False


def _has_no_more(given: Any, known: Any) -> bool:
    """Whether `given` says nothing that is not in `known`: keys with a default may be left out, so that
    files stay readable when a geometry gets more of them."""
    if isinstance(given, dict) and isinstance(known, dict):
        return all(key in known and _has_no_more(value, known[key]) for key, value in given.items())
    if isinstance(given, list) and isinstance(known, list):
        return len(given) == len(known) and all(map(_has_no_more, given, known))
    return bool(given == known)


def _on_one_line(text: str) -> str:
    """A message may quote names of the file."""
    return "".join(each if each.isprintable() else "?" for each in text[:_MOST_QUOTED])


def _row(entry: Entry) -> _Row:
    return _Row(
        name=entry.name,
        dtype=entry.dtype.label,
        shape=entry.shape,
        layout=entry.layout,
        block=entry.block,
        offset=entry.offset,
        length=entry.nbytes,
        part=entry.part,
        shard=_Shard(axis=_axis(entry.shard), unit=entry.shard.unit),
        sha256=entry.sha256,
    )


def _axis(shard: Shard) -> Literal[0, 1] | None:
    return None if shard.axis is None else 1 if shard.axis else 0


def _entry(row: _Row, path: Path) -> Entry:
    if (kind := PLAIN_TYPES.get(row.dtype)) is None:
        raise broken("V2-18", path, f"tensor {shown(row.name)} has the unknown dtype {shown(row.dtype)}")
    try:
        needed = planes_bytes(planes(row.layout, kind, row.shape, row.block))
    except ValueError as error:
        raise broken("V2-19", path, f"tensor {shown(row.name)} {error}") from error
    if row.length != needed:
        found = f"has {row.length} bytes where shape {list(row.shape)} in layout {row.layout} needs {needed}"
        raise broken("V2-20", path, f"tensor {shown(row.name)} {found}")
    shard = Shard(row.shard.axis, row.shard.unit)
    places = (row.offset, row.length, row.part, shard, row.sha256)
    return Entry(row.name, kind, row.shape, row.layout, row.block, *places)
