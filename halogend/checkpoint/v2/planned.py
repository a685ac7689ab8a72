"""What is to be written, and where all of it will lie: known before a byte of it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from halogend import version
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.v2.entries import Entry, Shard
from halogend.checkpoint.v2.header import HEADER_BYTES
from halogend.checkpoint.v2.index import CHUNK_BYTES, NO_DIGEST, Metadata, Quantisation, Source, encode_metadata
from halogend.checkpoint.v2.layout import LAYOUTS, TENSOR_ALIGNMENT, aligned, planes, planes_bytes
from halogend.checkpoint.v2.placing import place
from halogend.checkpoint.v2.shards import shard_of

NOTES_BYTES = 256 << 10  # put aside for sources and dropped tensors, which are known at the end
_FAR = 1 << 48  # as many digits as any offset has
_PART_DATA_START = HEADER_BYTES + TENSOR_ALIGNMENT


@dataclass(frozen=True, slots=True)
class Wanted:
    """A weight of the inventory, or text data (`text/...`, layout bytes, U8, shape [length]). `shard` None:
    as the model has it."""

    name: str
    dtype: PlainType
    shape: tuple[int, ...]
    layout: str
    shard: Shard | None = None


@dataclass(frozen=True, slots=True)
class Traits:
    """What the metadata says of all weights. `block` is the rows of a tile."""

    model: Geometry
    quantisation: Quantisation
    block: int


def place_all(
    wanted: Sequence[Wanted], traits: Traits, part_bytes: int | None, notes_bytes: int = NOTES_BYTES
) -> tuple[int, tuple[Entry, ...]]:
    """(data start of each file, entries), the digests not known. Raises ValueError for a shape that a
    layout cannot hold, and for a name that is there twice."""
    entries = [_unplaced(each, traits) for each in wanted]
    if len({entry.name for entry in entries}) != len(entries):
        raise ValueError("a name is there twice")
    if part_bytes is not None:
        found = _placed(entries, _PART_DATA_START, part_bytes)
        if found[-1].part > 0:
            return _PART_DATA_START, found
    start = aligned(HEADER_BYTES + _index_bytes(entries, traits) + notes_bytes)
    return start, _placed(entries, start, None)


def file_lengths(entries: Sequence[Entry]) -> list[int]:
    """Of each part."""
    ends = {entry.part: entry.end for entry in entries}
    return list(ends.values())


def _unplaced(wanted: Wanted, traits: Traits) -> Entry:
    is_tiled = wanted.layout in LAYOUTS and LAYOUTS[wanted.layout].is_tiled
    block = traits.block if is_tiled else 1
    nbytes = planes_bytes(planes(wanted.layout, wanted.dtype, wanted.shape, block))
    shard = wanted.shard or shard_of(traits.model, wanted.name, wanted.layout, block)
    return Entry(wanted.name, wanted.dtype, wanted.shape, wanted.layout, block, _FAR, nbytes, 0, shard, NO_DIGEST)


def _placed(entries: Sequence[Entry], data_start: int, part_bytes: int | None) -> tuple[Entry, ...]:
    places = place((entry.nbytes for entry in entries), data_start, part_bytes)
    return tuple(
        replace(entry, part=part, offset=offset) for entry, (part, offset) in zip(entries, places, strict=True)
    )


def _index_bytes(entries: Sequence[Entry], traits: Traits) -> int:
    """What the metadata takes without notes, at most."""
    data_bytes = sum(aligned(entry.nbytes) for entry in entries)
    measured = Metadata(
        model=traits.model,
        text="files",
        quantisation=traits.quantisation,
        producer=f"halogend {version()}",
        source=Source(format="", quantisation="", files=()),
        dropped=(),
        entries=tuple(entries),
        chunks=((NO_DIGEST,) * -(-data_bytes // CHUNK_BYTES),),
    )
    return len(encode_metadata(measured))
