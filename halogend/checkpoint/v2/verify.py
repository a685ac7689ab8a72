"""Whether the data of a v2 checkpoint is what was written: every byte is read, by several threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from halogend.checkpoint.errors import DIGEST_MISMATCH, CheckpointError
from halogend.checkpoint.files import open_regular
from halogend.checkpoint.v2.digests import Advance, Chunk, check_chunk, chunks_of, digest_at
from halogend.checkpoint.v2.entries import Entry
from halogend.checkpoint.v2.layout import aligned
from halogend.checkpoint.v2.reader import V2File
from halogend.checkpoint.v2.reading import read_at
from halogend.checkpoint.v2.rules import broken
from halogend.checkpoint.v2.threads import ending_together


def verify_bytes(file: V2File) -> int:
    """What `verify` tells `advance` in all: each byte of data is hashed with its chunk and with its tensor."""
    chunks = sum(header.file_bytes - header.data_start for header in file.headers)
    return chunks + sum(entry.nbytes for entry in file.metadata.entries)


def verify(file: V2File, threads: int | None = None, advance: Advance | None = None) -> tuple[CheckpointError, ...]:
    """Everything that is wrong with the data: rules V2-39 to V2-41. Raises CheckpointError for a file that
    cannot be read, or is not as long as it was when it was opened."""
    with ExitStack() as stack:
        descriptors = [stack.enter_context(open_regular(path)).fileno() for path in file.files]
        pool = ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)))
        told = stack.enter_context(ending_together(pool, advance))
        found = [
            *pool.map(partial(_chunk_fault, file, descriptors, told), chunks_of(file)),
            *pool.map(partial(_entry_fault, file, descriptors, told), file.metadata.entries),
            *_gap_faults(file, descriptors),
        ]
    return tuple(fault for fault in found if fault is not None)


def _chunk_fault(file: V2File, descriptors: list[int], advance: Advance, chunk: Chunk) -> CheckpointError | None:
    try:
        check_chunk(file, chunk, descriptors[chunk.part], advance)
    except CheckpointError as error:
        if error.code != DIGEST_MISMATCH:
            raise
        return error
    return None


def _entry_fault(file: V2File, descriptors: list[int], advance: Advance, entry: Entry) -> CheckpointError | None:
    path = file.files[entry.part]
    if digest_at(descriptors[entry.part], path, entry.offset, entry.nbytes, advance) == entry.sha256:
        return None
    return broken("V2-40", path, f"tensor {entry.name!r} is damaged: its digest does not match")


def _gap_faults(file: V2File, descriptors: list[int]) -> Iterator[CheckpointError]:
    for entry, after in zip(file.metadata.entries, file.metadata.entries[1:], strict=False):
        if entry.part == after.part and (length := aligned(entry.end) - entry.end):
            path = file.files[entry.part]
            if any(read_at(descriptors[entry.part], path, entry.end, length)):
                yield broken("V2-41", path, f"bytes behind tensor {entry.name!r} are not all zero")
