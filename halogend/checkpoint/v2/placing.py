"""Where entries lie: in order, each at the next multiple of 4096, from a file's data start to its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from halogend.checkpoint.errors import shown
from halogend.checkpoint.v2.entries import Entry
from halogend.checkpoint.v2.index import CHUNK_BYTES
from halogend.checkpoint.v2.layout import aligned
from halogend.checkpoint.v2.rules import broken

Extent = tuple[int, int]  # of a file: data start, length


def place(lengths: Iterable[int], data_start: int, part_bytes: int | None) -> Iterator[tuple[int, int]]:
    """(part, offset) of each. A new part begins where one would hold more than `part_bytes` of data; each
    starts its data at `data_start`."""
    part, end = 0, data_start
    for length in lengths:
        offset = aligned(end)
        if part_bytes is not None and end > data_start and offset + length - data_start > part_bytes:
            part, offset = part + 1, data_start
        yield part, offset
        end = offset + length


def check_places(entries: Sequence[Entry], extents: Sequence[Extent], files: Sequence[Path]) -> None:
    """`extents` and `files` are of the parts, one at least. Raises CheckpointError: rules V2-21 to V2-25."""
    names: set[str] = set()
    part, end = 0, extents[0][0]
    for entry in entries:
        if entry.name in names:
            raise broken("V2-21", files[part], f"tensor {shown(entry.name)} is there twice")
        names.add(entry.name)
        if entry.part == part + 1 < len(extents) and end > extents[part][0]:
            _check_end(files[part], end, extents[part][1])
            part += 1
            end = extents[part][0]
        if entry.part != part:
            what = f"is in part {entry.part}, and stands among those of {part}"
            raise broken("V2-23", files[part], f"tensor {shown(entry.name)} {what}")
        if entry.offset != aligned(end):
            what = f"begins at byte {entry.offset}; {aligned(end)} is wanted"
            raise broken("V2-22", files[part], f"tensor {shown(entry.name)} {what}")
        end = entry.end
        if end > extents[part][1]:
            what = f"ends at byte {end}, the file at {extents[part][1]}"
            raise broken("V2-24", files[part], f"tensor {shown(entry.name)} {what}")
    _check_end(files[part], end, extents[part][1])
    if part + 1 != len(extents):
        raise broken("V2-23", files[part + 1], "no tensor lies in this part")


def check_chunks(chunks: Sequence[Sequence[str]], extents: Sequence[Extent], path: Path) -> None:
    """Whether there is a digest for each chunk of each part. Raises CheckpointError: rule V2-26."""
    for part, ((start, end), digests) in enumerate(zip(extents, chunks, strict=True)):
        if len(digests) != (wanted := -(-(end - start) // CHUNK_BYTES)):
            what = f"has {len(digests)} digests of chunks for part {part}, whose data needs {wanted}"
            raise broken("V2-26", path, what)


def _check_end(path: Path, end: int, file_bytes: int) -> None:
    if end != file_bytes:
        raise broken("V2-25", path, f"{file_bytes - end} bytes behind byte {end} belong to no tensor")
