"""A small file that a document names, read once, and how to see later that it is another.

For keys and certificates. Blocking: run it in a thread.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from halogend.control.source_files import read_regular

Signature = tuple[int, int, int, int]
"""Device, inode, size and mtime in nanoseconds: a file that was replaced or rewritten differs."""


@dataclass(frozen=True, slots=True)
class InputFile:
    path: Path
    data: bytes = field(repr=False)
    signature: Signature
    exposure: str
    """Who else may read or write it, as a sentence's end; empty when only its owner and group."""


def read_input(path: Path, limit_bytes: int) -> InputFile:
    """Up to `limit_bytes` of the file. Raises OSError."""
    before = path.stat()
    data = read_regular(path, limit_bytes)
    return InputFile(path, data, _signature_of(before), _exposure(path, before.st_mode))


def signature(path: Path) -> Signature | None:
    """As the file lies there now; None where there is none, or it cannot be looked at."""
    try:
        return _signature_of(path.stat())
    except OSError:
        return None


def _signature_of(found: os.stat_result) -> Signature:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _exposure(path: Path, mode: int) -> str:
    """A folder that others may not enter protects what is in it."""
    if not path.resolve().parent.stat().st_mode & stat.S_IXOTH:
        return ""
    if mode & stat.S_IWOTH:
        return f"may be written by every user of this machine (mode {stat.S_IMODE(mode):04o})"
    return f"may be read by every user of this machine (mode {stat.S_IMODE(mode):04o})" if mode & stat.S_IROTH else ""
