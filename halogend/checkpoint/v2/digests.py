"""The sha256 of every chunk and tensor of a v2 checkpoint: made by the writer, checked by whoever asks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from halogend.checkpoint.v2.index import CHUNK_BYTES
from halogend.checkpoint.v2.placing import Extent
from halogend.checkpoint.v2.reader import V2File
from halogend.checkpoint.v2.reading import pieces_at
from halogend.checkpoint.v2.rules import broken

Advance = Callable[[int], object]  # told the bytes done; from any thread
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Chunk:
    """`number` counts through all parts, for sharing out between ranks; `offset` is in the file of `part`."""

    number: int
    part: int
    offset: int
    nbytes: int
    sha256: str


def chunk_places(extent: Extent) -> Iterator[tuple[int, int]]:
    """(offset, bytes) of the chunks from a file's data start to its end."""
    start, end = extent
    return ((offset, min(CHUNK_BYTES, end - offset)) for offset in range(start, end, CHUNK_BYTES))


def chunks_of(file: V2File) -> tuple[Chunk, ...]:
    """In the order of the files."""
    found: list[Chunk] = []
    for part, (header, digests) in enumerate(zip(file.headers, file.metadata.chunks, strict=True)):
        places = chunk_places((header.data_start, header.file_bytes))
        for (offset, nbytes), sha256 in zip(places, digests, strict=True):
            found.append(Chunk(len(found), part, offset, nbytes, sha256))
    return tuple(found)


def digest_at(descriptor: int, path: Path, offset: int, nbytes: int, advance: Advance | None = None) -> str:
    """In hex. Raises CheckpointError for what cannot be read."""
    digest = hashlib.sha256()
    for piece in pieces_at(descriptor, path, offset, nbytes):
        digest.update(piece)
        if advance is not None:
            advance(len(piece))
    return digest.hexdigest()


def check_chunk(file: V2File, chunk: Chunk, descriptor: int, advance: Advance | None = None) -> None:
    """`descriptor` is of `file.files[chunk.part]`. Raises CheckpointError naming the tensors that lie there
    for bytes that are not those written: rule V2-39."""
    path = file.files[chunk.part]
    if digest_at(descriptor, path, chunk.offset, chunk.nbytes, advance) != chunk.sha256:
        end = chunk.offset + chunk.nbytes
        what = f"bytes {chunk.offset} to {end - 1} are damaged: their digest does not match"
        raise broken("V2-39", path, f"{what}, {_lying_in(file, chunk)}")


def _lying_in(file: V2File, chunk: Chunk) -> str:
    end = chunk.offset + chunk.nbytes
    names = [
        repr(entry.name)
        for entry in file.metadata.entries
        if entry.part == chunk.part and entry.offset < end and entry.end > chunk.offset
    ]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"in {', '.join(names[:_MOST_NAMED])}{more}" if names else "between tensors"
