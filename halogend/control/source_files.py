"""Reads the file or the directory a document is in: bytes as they are, whole, or SourceError.

Of a directory the files `*.yaml` and `*.yml` count; names that begin with a dot, and with them the layers
below a mounted ConfigMap, are others' business. Every function blocks and changes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

from halogend.config.parts import Part, pack
from halogend.control.source import MAX_DOCUMENT_BYTES, Content, SourceError

MAX_FILES = 512
_ENDINGS = (".yaml", ".yml")
_TRIES, _PAUSE_S = 10, 0.02

Signature = tuple[tuple[str, int, int, int, int], ...]


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """Up to `limit_bytes` of a regular file; a pipe or a device, which could hold the reader for
    ever, is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(limit_bytes)


def read_content(path: Path) -> Content:
    """What the file holds, or the files of the directory. Raises SourceError."""
    if is_directory(path):
        return _read_directory(path)
    return Content.of(_read_file(path))


def is_directory(path: Path) -> bool:
    """False also where that cannot be told: the reading then says why."""
    try:
        return path.is_dir()
    except OSError:
        return False


def names_in(path: Path) -> tuple[str, ...]:
    """The files of a directory that count, in the order in which they are merged. Raises OSError."""
    found = sorted(each.name for each in path.iterdir() if each.suffix in _ENDINGS and not each.is_dir())
    return tuple(name for name in found if not name.startswith("."))


def signature(path: Path) -> Signature:
    """What tells cheaply that nothing changed; empty while there is nothing. Two that are equal may still
    hide a change: bytes decide."""
    try:
        files = [path / name for name in names_in(path)] if is_directory(path) else [path]
        return tuple(_stated(file) for file in files)
    except OSError:
        return ()


def _stated(path: Path) -> tuple[str, int, int, int, int]:
    found = path.stat()
    return str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _read_directory(path: Path) -> Content:
    """A set that was there at one moment: files that change while they are read are read again."""
    for _ in range(_TRIES):
        before = signature(path)
        try:
            parts = _read_parts(path)
        except SourceError:
            if signature(path) == before:
                raise
        else:
            if signature(path) == before:
                return Content.of(pack(parts))
        time.sleep(_PAUSE_S)
    raise SourceError(f"the files in {path} change while they are read, again and again")


def _read_parts(path: Path) -> list[Part]:
    try:
        names = names_in(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(names) > MAX_FILES:
        raise SourceError(f"{path} holds {len(names)} documents, over the limit of {MAX_FILES}")
    parts: list[Part] = []
    left = MAX_DOCUMENT_BYTES
    for name in names:
        parts.append(Part(name, _read_file(path / name)))
        left -= len(parts[-1].data)
        if left < 0:
            raise SourceError(f"the documents in {path} are larger than {MAX_DOCUMENT_BYTES >> 20} MiB together")
    return parts


def _read_file(path: Path) -> bytes:
    try:
        data = read_regular(path, MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > MAX_DOCUMENT_BYTES:
        raise SourceError(f"{path} is larger than {MAX_DOCUMENT_BYTES >> 20} MiB")
    return data


def _unreadable(path: Path, error: OSError) -> SourceError:
    return SourceError(f"{path} cannot be read: {error.strerror or error}")
