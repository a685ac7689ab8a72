"""A watch on the folder of a document: whether events can be had there, and why not.

An event means "maybe" and nothing more; which bytes count is the source's business. Where no event can be
had (inotify is used up, the file system is on another machine, the folder is gone), `reason` says so, and
who owns the watch looks more often. Every method but the properties blocks: run it in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.inotify import InotifyEmitter

from halogend.control.source_files import is_directory

_log = structlog.get_logger()
_RETRY_S = 30.0
_REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "lustre", "gpfs", "afs", "glusterfs", "beegfs", "virtiofs"}
    | {"vboxsf", "prl_fs", "ocfs2", "gfs2"}
)
_ESCAPE = re.compile(r"\\([0-7]{3})")
_USED_UP = {
    errno.ENOSPC: "no inotify watch is left; raise fs.inotify.max_user_watches",
    errno.EMFILE: "no inotify instance is left; raise fs.inotify.max_user_instances, or the limit of open files",
    errno.ENOSYS: "the kernel has no inotify",
}

Observe = Callable[[Path, Callable[[], object]], Callable[[], None]]
"""Begins to tell of changes directly in a folder; returns what ends it. Raises OSError."""


def inotify(folder: Path, tell: Callable[[], object]) -> Callable[[], None]:
    """As Observe. Opening and reading are our own doing; everything else may be a change."""
    logging.getLogger(InotifyEmitter.__module__).addFilter(_is_no_end)
    observer = Observer()
    observer.schedule(_Maybe(tell), str(folder))
    try:
        observer.start()
    except OSError:
        observer.stop()  # it never began, but it has descriptors and a thread that reads
        raise

    def stop() -> None:
        observer.stop()
        observer.join()

    return stop


def _is_no_end(record: logging.LogRecord) -> bool:
    """An event that comes while the observer is told to stop is an error to it: its thread finds its work taken away.
    It is the end that was asked for."""
    return "when the thread is inactive" not in record.getMessage()


class Watch:
    """`reason` says why events cannot be had or trusted; None while they can. Single writer: whoever calls
    `keep`, one thread at a time."""

    def __init__(
        self,
        path: Path,
        tell: Callable[[], object],
        observe: Observe = inotify,
        mounts: Path = Path("/proc/self/mountinfo"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reason: str | None = None
        self._path = path.absolute()
        self._tell = tell
        self._observe = observe
        self._mounts = mounts
        self._clock = clock
        self._watched: tuple[int, int] | None = None
        self._end: Callable[[], None] | None = None
        self._failed_at: float | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def keep(self) -> None:
        """To be called now and then: the folder may have come, gone, or been replaced by another."""
        with self._lock:
            if self._is_closed:
                return
            folder = self._path if is_directory(self._path) else self._path.parent
            before = self.reason
            self.reason = self._kept(folder)
            if self.reason != before:
                self._say(folder)

    def stop(self) -> None:
        with self._lock:
            self._is_closed = True
            self._leave()

    def _kept(self, folder: Path) -> str | None:
        """The reason, with a watch on this folder where there can be one."""
        try:
            found = folder.stat()
        except OSError as error:
            self._leave()
            return f"{folder} cannot be looked at: {error.strerror or error}"
        identity = (found.st_dev, found.st_ino)
        if identity != self._watched:
            failed = self._failed_at
            if failed is not None and self._clock() - failed < _RETRY_S:
                return self.reason
            self._leave()
            try:
                # inotify does not follow a link to the folder
                self._end = self._observe(Path(os.path.realpath(folder)), self._tell)
            except OSError as error:
                self._failed_at = self._clock()
                return _USED_UP.get(error.errno or 0, f"no watch can be had: {error.strerror or error}")
            self._watched, self._failed_at = identity, None
            self._tell()  # what changed before the watch was there was told by nobody
        kind = self._remote_kind()
        return f"{kind} does not tell of what other machines change" if kind else None

    def _leave(self) -> None:
        end, self._end, self._watched, self._failed_at = self._end, None, None, None
        if end is not None:
            end()

    def _remote_kind(self) -> str | None:
        """The type of the file system the document is on, where that is another machine's."""
        kind = file_system(Path(os.path.realpath(self._path)), self._mounts)
        return kind if kind in _REMOTE or kind.startswith("fuse.") else None

    def _say(self, folder: Path) -> None:
        if self.reason is None:
            _log.info("source_watched_again", folder=str(folder))
        else:
            _log.warning("source_polled", folder=str(folder), reason=self.reason)


def file_system(path: Path, mounts: Path) -> str:
    """The type of the file system that holds this real path; empty where that cannot be told."""
    kind, longest = "", -1
    with contextlib.suppress(OSError):
        for line in mounts.read_text(errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            fields = before.split()
            if len(fields) < 5 or not after:
                continue
            point = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4])
            if path.is_relative_to(point) and len(point) >= longest:  # of two at one place the later hides the other
                kind, longest = after.split()[0], len(point)
    return kind


class _Maybe(FileSystemEventHandler):
    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type not in {"opened", "closed_no_write"}:
            self._tell()
