"""Writing a v2 checkpoint: first where everything lies, then the data in any order, then the header.

with Writer(path, model=geometry, quantisation="int4") as writer:
    for entry in writer.plan(wanted):          nothing is written yet, and there is room for all
        writer.write(entry.name, 0, data)      from several threads
    writer.seal("files", source, dropped)      digests and headers; writer.sealed() opens it for a last look
    writer.publish()                           only now the file has its name
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from halogend import version
from halogend.checkpoint.errors import NO_SPACE, CheckpointError
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.v2.digests import Advance, chunk_places, digest_at
from halogend.checkpoint.v2.entries import Entry
from halogend.checkpoint.v2.header import HEADER_BYTES, MANIFEST, MAX_METADATA_BYTES, PART, Header
from halogend.checkpoint.v2.index import (
    Metadata,
    PartMetadata,
    Quantisation,
    Source,
    TextKind,
    encode_metadata,
    encode_part,
    set_digest,
)
from halogend.checkpoint.v2.layout import DEFAULT_BLOCK, aligned
from halogend.checkpoint.v2.older import remove_older_parts
from halogend.checkpoint.v2.planned import NOTES_BYTES, Traits, Wanted, file_lengths, place_all
from halogend.checkpoint.v2.reader import V2File, open_unmoved, part_names
from halogend.checkpoint.v2.reading import read_at
from halogend.checkpoint.v2.temporary import TemporaryFile, remove_stale, sync_directory, unwritable
from halogend.checkpoint.v2.threads import ending_together
from halogend.checkpoint.v2.weights import find

__all__ = ["NOTES_BYTES", "Source", "Wanted", "Writer"]


class Writer:
    """One conversion's; a context that leaves nothing behind unless it was published. `block` is the rows
    of a tile, `part_bytes` the most data in one file (None: all in one)."""

    def __init__(
        self,
        dst: str | Path,
        *,
        model: Geometry,
        quantisation: Quantisation,
        block: int = DEFAULT_BLOCK,
        part_bytes: int | None = None,
    ) -> None:
        self.path = Path(dst)
        self.entries: Mapping[str, Entry] = {}
        self._traits = Traits(model, quantisation, block)
        self._part_bytes = part_bytes
        self._data_start = 0
        self._files: list[TemporaryFile] = []
        self._written: dict[str, int] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    def plan(self, wanted: Sequence[Wanted], notes_bytes: int = NOTES_BYTES) -> tuple[Entry, ...]:
        """Where each lies, in the order given, which is that of loading. `notes_bytes` is room in the
        metadata for what `finish` is told. Raises CheckpointError where the weights are not the model's,
        where there is too little room on the disk, and for what cannot be written; ValueError for a shape
        that a layout cannot hold."""
        self._data_start, entries = place_all(wanted, self._traits, self._part_bytes, notes_bytes)
        find(self._traits.model, entries, self.path)
        remove_stale(self.path)
        lengths = file_lengths(entries)
        self._check_room(sum(lengths))
        paths = [self.path] if len(lengths) == 1 else part_names(self.path, len(lengths))
        for path, length in zip(paths, lengths, strict=True):
            self._files.append(TemporaryFile(path, length))
        self.entries = {entry.name: entry for entry in entries}
        self._written = dict.fromkeys(self.entries, 0)
        return entries

    def write(self, name: str, start: int, data: memoryview | bytes) -> None:
        """`data` from byte `start` of the entry on. Safe from several threads. Raises CheckpointError."""
        entry, nbytes = self.entries[name], memoryview(data).nbytes
        if start < 0 or start + nbytes > entry.nbytes:
            raise ValueError(f"bytes {start} to {start + nbytes} are not in {name!r}, which has {entry.nbytes}")
        self._files[entry.part].write(entry.offset + start, data)
        with self._lock:
            self._written[name] += nbytes

    def read(self, name: str, start: int, nbytes: int) -> bytes:
        """What was written there of the entry. Raises CheckpointError."""
        entry = self.entries[name]
        file = self._files[entry.part]
        return read_at(file.descriptor, file.path, entry.offset + start, nbytes)

    def finish(
        self,
        text: TextKind,
        source: Source,
        dropped: Sequence[str] = (),
        *,
        threads: int | None = None,
        advance: Advance | None = None,
    ) -> Metadata:
        """`seal` and `publish`, for whom what is written needs no further look. Raises as they do."""
        metadata = self.seal(text, source, dropped, threads=threads, advance=advance)
        self.publish()
        return metadata

    def seal(
        self,
        text: TextKind,
        source: Source,
        dropped: Sequence[str] = (),
        *,
        threads: int | None = None,
        advance: Advance | None = None,
    ) -> Metadata:
        """Hashes everything twice, by tensors and by chunks (`advance` is told the bytes), and writes the
        headers, under temporary names still. Raises CheckpointError; ValueError where an entry was not written
        whole or the notes are longer than was put aside."""
        self._check_whole()
        pool = ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)))
        with ending_together(pool, advance) as told:
            metadata = Metadata(
                model=self._traits.model,
                text=text,
                quantisation=self._traits.quantisation,
                producer=f"halogend {version()}",
                source=source,
                dropped=tuple(dropped),
                entries=tuple(pool.map(partial(self._hashed, told), self.entries.values())),
                chunks=tuple(
                    tuple(pool.map(partial(self._hashed_chunk, told, file), self._places(file))) for file in self._files
                ),
            )
        self._seal(metadata)
        return metadata

    def sealed(self) -> V2File:
        """What `seal` has made, opened where it lies. Raises CheckpointError."""
        *parts, last = (file.path for file in self._files)
        return open_unmoved(last, tuple(parts))

    def publish(self) -> None:
        """Moves what is sealed to its place, the manifest last; then what was there has no parts any more. Raises
        CheckpointError."""
        for file in self._files:
            file.move()
        sync_directory(self.path.parent)
        remove_older_parts(self.path, [file.final for file in self._files])
        for file in self._files:
            file.close()
        self._files.clear()

    def abandon(self) -> None:
        """Removes what is under a temporary name. After `publish` that is nothing."""
        for file in self._files:
            file.remove()
        self._files.clear()

    def _check_room(self, wanted_bytes: int) -> None:
        try:
            there = os.statvfs(self.path.parent)
        except OSError as error:
            raise unwritable(self.path, error) from error
        free = there.f_bavail * there.f_frsize
        if wanted_bytes > free:
            what = f"{wanted_bytes} bytes are wanted, {free} are free"
            raise CheckpointError(NO_SPACE, f"{self.path}: there is too little room: {what}")

    def _check_whole(self) -> None:
        for entry in self.entries.values():
            if self._written[entry.name] < sum(plane.nbytes for plane in entry.planes):
                raise ValueError(f"{entry.name!r} was not written whole")

    def _places(self, file: TemporaryFile) -> Iterator[tuple[int, int]]:
        """Of its chunks."""
        return chunk_places((self._data_start, file.file_bytes))

    def _hashed(self, advance: Advance, entry: Entry) -> Entry:
        file = self._files[entry.part]
        return replace(entry, sha256=digest_at(file.descriptor, file.path, entry.offset, entry.nbytes, advance))

    def _hashed_chunk(self, advance: Advance, file: TemporaryFile, place: tuple[int, int]) -> str:
        return digest_at(file.descriptor, file.path, *place, advance)

    def _seal(self, metadata: Metadata) -> None:
        raw = encode_metadata(metadata)
        if len(self._files) == 1:
            if HEADER_BYTES + len(raw) > self._data_start or len(raw) > MAX_METADATA_BYTES:
                raise ValueError(f"the metadata has {len(raw)} bytes, more than was put aside for it")
            self._files[0].seal(self._header(raw, 0, self._data_start, self._files[0].file_bytes), raw)
            return
        digest = set_digest(metadata.entries)
        for index, file in enumerate(self._files):
            part = encode_part(PartMetadata(set=digest, part=index, of=len(self._files)))
            file.seal(self._header(part, PART, self._data_start, file.file_bytes), part)
        end = aligned(HEADER_BYTES + len(raw))
        manifest = TemporaryFile(self.path, end)
        self._files.append(manifest)
        manifest.seal(self._header(raw, MANIFEST, end, end), raw)

    def _header(self, raw: bytes, flags: int, data_start: int, file_bytes: int) -> Header:
        return Header(
            flags=flags,
            file_bytes=file_bytes,
            metadata_bytes=len(raw),
            data_start=data_start,
            metadata_sha256=hashlib.sha256(raw).digest(),
        )
