"""A file that is written beside its place, and takes it when it is whole.

It is locked while it is written, so that what a killed writer left behind is known: nobody holds its
lock, and the process of its name is gone, or another has its number since: in a container they are few.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import time
from pathlib import Path

from halogend.checkpoint.errors import NO_SPACE, UNWRITABLE, CheckpointError
from halogend.checkpoint.v2.header import HEADER_BYTES, Header

_NAME = re.compile(r"\..+\.tmp-\d{1,10}-[0-9a-f]+", re.DOTALL)
_LOCKED_AFTER_S = 60.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def unwritable(path: Path, error: OSError) -> CheckpointError:
    code = NO_SPACE if error.errno in _FULL else UNWRITABLE
    return CheckpointError(code, f"{path}: cannot be written: {error.strerror}")


class TemporaryFile:
    """Of `file_bytes`, holes at first. What it is to be opened by, its header, is written last. Safe to
    write from several threads. Raises CheckpointError."""

    def __init__(self, final: Path, file_bytes: int) -> None:
        self.final = final
        self.file_bytes = file_bytes
        self.path = final.with_name(f".{final.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise unwritable(self.path, error) from error
        try:
            with contextlib.suppress(OSError):  # not every file system has locks; the file is new, so nobody holds one
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self.descriptor, file_bytes)
        except OSError as error:
            self.remove()
            raise unwritable(self.path, error) from error

    def write(self, offset: int, data: memoryview | bytes) -> None:
        view = memoryview(data).cast("B")
        try:
            while view:
                count = os.pwrite(self.descriptor, view, offset)
                view, offset = view[count:], offset + count
        except OSError as error:
            raise unwritable(self.path, error) from error

    def seal(self, header: Header, metadata: bytes) -> None:
        """Everything is on the disk before the header is written, and then it too."""
        self.write(HEADER_BYTES, metadata)
        self._sync()
        self.write(0, header.encode())
        self._sync()

    def move(self) -> None:
        """To its place, over what was there."""
        try:
            self.path.replace(self.final)
        except OSError as error:
            raise unwritable(self.final, error) from error

    def close(self) -> None:
        """Its lock goes too."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def remove(self) -> None:
        """Where it is still under its own name, it goes."""
        with contextlib.suppress(OSError):  # it may have been moved already; nothing can be done about the rest
            self.path.unlink(missing_ok=True)
        self.close()

    def _sync(self) -> None:
        try:
            os.fsync(self.descriptor)
        except OSError as error:
            raise unwritable(self.path, error) from error


def is_temporary(path: Path) -> bool:
    """Whether it has the name of a file that is written, or was left behind: whole or not, it is no checkpoint yet."""
    return _NAME.fullmatch(path.name) is not None


def sync_directory(directory: Path) -> None:
    """So that a file that was moved there is there after a crash. Raises CheckpointError."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unwritable(directory, error) from error


def remove_stale(final: Path) -> list[Path]:
    """Takes away what writers of `final` (or of its parts) left behind that were killed; which those were."""
    stem, suffix = re.escape(final.stem), re.escape(final.suffix)
    pattern = re.compile(rf"\.{stem}(-\d{{5}}-of-\d{{5}})?{suffix}\.tmp-(\d{{1,10}})-[0-9a-f]+")
    removed = []
    with contextlib.suppress(OSError):  # what cannot be looked at or removed is only in the way
        for entry in os.scandir(final.parent):
            named = pattern.fullmatch(entry.name)
            if named and (_is_old(entry) or not _is_alive(int(named[2]))) and _is_unlocked(Path(entry.path)):
                Path(entry.path).unlink(missing_ok=True)
                removed.append(Path(entry.path))
    return removed


def _is_old(entry: os.DirEntry[str]) -> bool:
    """Whether its writer has had the time to lock it."""
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > _LOCKED_AFTER_S


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _is_unlocked(path: Path) -> bool:
    """False where that cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
