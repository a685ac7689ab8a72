"""Whether a file's pages are in the page cache, and how to have them there or not."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

_PIECE_BYTES = 8 << 20


def read_through(path: Path) -> None:
    """Every byte once, from the first to the last, with read(2) into one buffer of 8 MiB."""
    buffer = bytearray(_PIECE_BYTES)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while os.readv(descriptor, [buffer]):
            pass
    finally:
        os.close(descriptor)


def drop(path: Path) -> None:
    """Asks for the file's pages to leave the cache (posix_fadvise(2)); those that are mapped or not yet
    written to the disk stay."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def cached_share(paths: Iterable[Path]) -> float:
    """Of all pages of these files, the share that the cache holds now (mincore(2))."""
    cached, total = 0, 0
    for path in paths:
        pages = _residency(path)
        cached, total = cached + sum(page & 1 for page in pages), total + len(pages)
    return cached / total if total else 0.0


def _residency(path: Path) -> bytes:
    """A byte for each page, whose lowest bit tells. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return b""
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
            start = ctypes.c_char.from_buffer(mapped)
            pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
            status = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), pages)
            number = ctypes.get_errno()
            del start  # a mapping that is looked at cannot be closed
    if status:
        raise OSError(number, os.strerror(number), str(path))
    return pages.raw
