"""Looking at what lies at a path: whatever the file system answers is an answer or a CheckpointError."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from halogend.checkpoint.errors import FILE_UNREADABLE, FORMAT_UNKNOWN, KEY_INVALID, CheckpointError

_LFS_POINTER = b"version https://git-lfs"  # how the text file begins that Git keeps in place of a large one
_PIECE_BYTES = 1 << 20
_HEAD_BYTES = 32  # enough to know such a file by
_MOST_LINKS = 40  # as Linux has it


def unreadable(path: Path, error: OSError | ValueError) -> CheckpointError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return CheckpointError(FILE_UNREADABLE, f"{path}: cannot be read: {reason}")


def is_directory(path: Path) -> bool:
    """False where nothing is. Raises CheckpointError for what cannot be looked at."""
    try:
        return path.is_dir()
    except OSError as error:
        raise unreadable(path, error) from error


def is_there(path: Path) -> bool:
    """Whether the directory has the name, be it a symlink to nothing. Raises CheckpointError for what
    cannot be looked at."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    return True


def names_in(directory: Path) -> list[str]:
    """Sorted. Raises CheckpointError."""
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        raise unreadable(directory, error) from error


def open_regular(path: Path) -> BinaryIO:
    """The file, opened for reading. Raises CheckpointError for what is missing, unreadable or no
    regular file (a pipe would block for ever)."""
    mode = stat_of(path).st_mode
    if stat.S_ISREG(mode):
        try:
            return path.open("rb", buffering=0)
        except OSError as error:
            raise unreadable(path, error) from error
    kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
    raise CheckpointError(FILE_UNREADABLE, f"{path}: is {kind}; a file is wanted here")


def stat_of(path: Path) -> os.stat_result:
    """What the file system says of the path, symlinks followed. Raises CheckpointError."""
    try:
        return path.stat()
    except (OSError, ValueError) as error:
        target = _target(path) if isinstance(error, FileNotFoundError) else None
        if target is not None:
            what = f"is a dangling symlink to {target}: the download is incomplete"
            raise CheckpointError(FILE_UNREADABLE, f"{path}: {what}") from error
        raise unreadable(path, error) from error


def links_from(path: Path) -> Iterator[Path]:
    """The path itself, and what each symlink on the way from it names."""
    for _ in range(_MOST_LINKS):
        yield path
        target = _target(path)
        if target is None:
            return
        path = path.parent / target


def _target(path: Path) -> Path | None:
    """What a symlink names, None for what is none."""
    try:
        return path.readlink()
    except OSError:
        return None


def read_whole(path: Path, most: int, code: str = KEY_INVALID) -> bytes:
    """All of a file of up to `most` bytes, whole MiB of them. Raises CheckpointError for what cannot be
    read, for a file that Git LFS has not fetched, and with `code` for a larger one."""
    data = bytearray()
    with open_regular(path) as file:
        try:
            while len(data) <= most and (more := file.read(_PIECE_BYTES)):
                data += more
        except OSError as error:
            raise unreadable(path, error) from error
    if len(data) > most:
        raise _too_large(path, most, code)
    if is_lfs_pointer(data):
        raise lfs_pointer(path)
    return bytes(data)


def check_readable(path: Path, most: int, code: str = KEY_INVALID) -> None:
    """Raises what `read_whole` would, and CheckpointError with `code` for an empty file, without reading all."""
    with open_regular(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_HEAD_BYTES)
        except OSError as error:
            raise unreadable(path, error) from error
    if not head:
        raise CheckpointError(code, f"{path}: is empty")
    if size > most:
        raise _too_large(path, most, code)
    if is_lfs_pointer(head):
        raise lfs_pointer(path)


def _too_large(path: Path, most: int, code: str) -> CheckpointError:
    return CheckpointError(code, f"{path}: is larger than {most >> 20} MiB")


def is_lfs_pointer(head: bytes | bytearray) -> bool:
    """`head` is what a file begins with, 32 bytes of it where there are so many."""
    return head.startswith(_LFS_POINTER)


def lfs_pointer(path: Path) -> CheckpointError:
    what = "is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
    return CheckpointError(FORMAT_UNKNOWN, f"{path}: {what}")
