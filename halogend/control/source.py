"""Where the document comes from: a file whose folder is watched, or what the command line states.

Any event in the folder only means "maybe"; a slow poll means it as well. The bytes decide: what
differs from what was last seen is offered, once per burst. A missing or empty file is an editor's
or a rename's middle, never a wish: nothing is offered until there is content again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from halogend.config.parse import parse
from halogend.config.places import ParseResult

MAX_DOCUMENT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. A burst is over after `trailing` of quiet, at the latest `longest` after it began."""

    trailing: float = 0.2
    longest: float = 2.0
    poll: float = 5.0


@dataclass(frozen=True, slots=True)
class Content:
    """What the source held when it was read once."""

    data: bytes
    digest: str


Parse = Callable[[bytes, str, Mapping[str, str]], ParseResult]


class SourceError(Exception):
    """The source cannot be read; says which path and why."""


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


class FileSource:
    """`read` is the only way to the bytes. `on_change` gets content that was not seen before."""

    def __init__(self, path: Path, on_change: Callable[[Content], None], timing: Timing | None = None) -> None:
        self.path = path
        self._on_change = on_change
        self._timing = timing or Timing()
        self._last_seen: str | None = None
        self._maybe = asyncio.Event()
        self._observer: BaseObserver | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def parse(self) -> Parse:
        return parse

    def read(self) -> Content:
        """The bytes now; remembered as seen. Raises SourceError."""
        content = self.peek()
        self._last_seen = content.digest
        return content

    def peek(self) -> Content:
        """The bytes now; a watch still takes them for new. Raises SourceError."""
        try:
            data = read_regular(self.path, MAX_DOCUMENT_BYTES + 1)
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror or error}") from error
        if len(data) > MAX_DOCUMENT_BYTES:
            raise SourceError(f"{self.path} is larger than {MAX_DOCUMENT_BYTES >> 20} MiB")
        return Content(data, hashlib.sha256(data).hexdigest())

    def start(self) -> None:
        """Begins to watch. Where no watch can be had, the poll alone serves."""
        loop = asyncio.get_running_loop()
        observer = Observer()
        handler = _Maybe(lambda: loop.call_soon_threadsafe(self._maybe.set))
        with contextlib.suppress(OSError):  # out of inotify watches, or a folder that is not there
            observer.schedule(handler, str(self.path.absolute().parent))
            observer.start()
            self._observer = observer
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._observer is not None:
            self._observer.stop()
            await asyncio.to_thread(self._observer.join)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timing.poll):
                    await self._maybe.wait()
                await self._until_quiet()
            self._maybe.clear()
            await self._look()

    async def _until_quiet(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timing.longest):
                while self._maybe.is_set():
                    self._maybe.clear()
                    await asyncio.sleep(self._timing.trailing)

    async def _look(self) -> None:
        """Offers what is new once two readings agree: without events a writer may be in the middle."""
        seen = self._last_seen
        content = self._read_or_none()
        if content is None or content.digest == seen:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timing.longest):
                while True:
                    await asyncio.sleep(self._timing.trailing)
                    before, content = content, self._read_or_none()
                    if before and content and before.digest == content.digest:
                        break
        if content is not None and content.data.strip() and content.digest != seen:
            self._on_change(content)
        else:
            self._last_seen = seen

    def _read_or_none(self) -> Content | None:
        try:
            return self.read()
        except SourceError:
            return None


class StatedSource:
    """A document that is stated once and stays until the process ends: there is nothing to watch.

    `name` stands for it in status and problems; `parse` reads it, and names where a fault of it is.
    """

    def __init__(self, name: str, data: bytes, parse: Parse) -> None:
        self.name = name
        self.parse = parse
        self._content = Content(data, hashlib.sha256(data).hexdigest())

    def read(self) -> Content:
        return self._content

    def peek(self) -> Content:
        return self._content

    def start(self) -> None:
        """Nothing begins: it cannot change."""

    async def stop(self) -> None:
        """Nothing was begun."""


class _Maybe(FileSystemEventHandler):
    """Opening and reading are our own doing; everything else in the folder may be a change."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type not in {"opened", "closed_no_write"}:
            self._tell()
