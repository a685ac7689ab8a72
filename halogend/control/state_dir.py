"""The folder in which a daemon keeps what it must know after a restart: whole files or none.

Owns how bytes get to the disk and back; must never know what they mean. A file is written beside,
synced and renamed over, so that one that is there is whole at whatever moment the power goes. Every
method blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import structlog

_log = structlog.get_logger()
_MAX_FILE_BYTES = 8 << 20
_UNFINISHED = ".unfinished-"
_ASIDE = ".bad"
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class StateError(Exception):
    """The folder cannot be used; says why, and what would help."""


class StateDir:
    """Single writer: the process that opened it. Names are relative, at most one folder deep."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> StateDir:
        """Makes the folder where there is none, and takes it for this process. A path that is a symlink is
        followed once, here. Raises StateError."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = path.resolve(strict=True)
            _refuse_what_others_may_write(path)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | _OPEN_FLAGS, 0o600)
        except OSError as error:
            raise StateError(f"{path} cannot be used: {error.strerror or error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            opened = cls(path, lock)
            opened._sweep()
        except OSError as error:
            os.close(lock)
            busy = isinstance(error, BlockingIOError)
            why = "another halogend uses it" if busy else str(error.strerror or error)
            raise StateError(f"{path} cannot be used: {why}") from error
        return opened

    def close(self) -> None:
        os.close(self._lock)

    def names(self, folder: str) -> list[str]:
        """The whole files in a folder, as `folder/name`; none where there is no folder."""
        try:
            found = [each.name for each in os.scandir(self.path / folder) if each.is_file()]
        except OSError:
            return []
        whole = [name for name in found if not name.startswith(".") and not name.endswith(_ASIDE)]
        return [f"{folder}/{name}" for name in sorted(whole)]

    def read(self, name: str) -> bytes | None:
        """None where there is no such file. One that cannot be read is set aside."""
        try:
            with (self.path / name).open("rb") as file:
                data = file.read(_MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.set_aside(name, str(error.strerror or error))
            return None
        if len(data) > _MAX_FILE_BYTES:
            self.set_aside(name, f"it is larger than {_MAX_FILE_BYTES >> 20} MiB")
            return None
        return data

    def set_aside(self, name: str, why: str) -> None:
        """What is not ours, or is broken, is kept for whoever wants to look, and is in nobody's way."""
        _log.warning("state_file_set_aside", path=str(self.path / name), moved_to=f"{name}{_ASIDE}", reason=why)
        with contextlib.suppress(OSError):
            (self.path / name).replace(self.path / f"{name}{_ASIDE}")

    def write(self, name: str, data: bytes) -> None:
        """The old file or the new one is there at every moment. Raises OSError."""
        path = self.path / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        beside = path.parent / f"{_UNFINISHED}{path.name}"
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OPEN_FLAGS, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        _sync_folder(path.parent)

    def remove(self, name: str) -> None:
        """Raises OSError, but not where there is no such file: on a read-only disk unlink(2) fails then too."""
        if os.path.lexists(self.path / name):
            (self.path / name).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """What an interrupted write left behind."""
        for path in self._unfinished():
            path.unlink(missing_ok=True)

    def _unfinished(self) -> Iterator[Path]:
        yield from self.path.glob(f"{_UNFINISHED}*")
        yield from self.path.glob(f"*/{_UNFINISHED}*")


def _refuse_what_others_may_write(path: Path) -> None:
    """Whoever may write here can put documents and holds into the next start. Raises StateError, OSError."""
    found = path.stat(follow_symlinks=False)
    user = os.geteuid()
    if not stat.S_ISDIR(found.st_mode):
        raise StateError(f"{path} cannot be used: it is no folder")
    if found.st_uid != user:
        why = f"it belongs to user {found.st_uid}, and this is user {user}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"others may write there (mode {stat.S_IMODE(found.st_mode):04o})"
    else:
        return
    raise StateError(f"{path} cannot be used: {why}. Name another with --state, or: chown {user} and chmod 700")


def _sync_folder(path: Path) -> None:
    """A rename is on the disk once its folder is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
