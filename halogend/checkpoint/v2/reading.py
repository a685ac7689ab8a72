"""Plain reads of checked places: every byte asked for, or a CheckpointError."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from halogend.checkpoint.errors import TRUNCATED, CheckpointError
from halogend.checkpoint.files import unreadable

_PIECE_BYTES = 1 << 20


def read_at(descriptor: int, path: Path, offset: int, nbytes: int) -> bytes:
    """Raises CheckpointError."""
    return b"".join(bytes(piece) for piece in pieces_at(descriptor, path, offset, nbytes))


def pieces_at(descriptor: int, path: Path, offset: int, nbytes: int) -> Iterator[memoryview]:
    """The bytes in pieces of up to 1 MiB, each valid until the next. Raises CheckpointError."""
    held = memoryview(bytearray(min(nbytes, _PIECE_BYTES)))
    position, end = offset, offset + nbytes
    while position < end:
        try:
            count = os.preadv(descriptor, [held[: end - position]], position)
        except OSError as error:
            raise unreadable(path, error) from error
        if count == 0:
            raise CheckpointError(TRUNCATED, f"{path}: the file ends at byte {position}; was it cut short?")
        yield held[:count]
        position += count
