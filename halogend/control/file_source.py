"""A file or a directory as the source: watched, and read again when it may have changed.

Any event only means "maybe"; a slow poll means it as well. The bytes decide: what differs from what was
last seen is offered, once per burst. What is missing or empty is an editor's or a rename's middle, never a
wish: nothing is offered until there is content again. A directory that lost a file is offered when it has
stayed so for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from halogend.config.parse import parse
from halogend.config.parts import is_unfinished, unpack
from halogend.control.aside import aside
from halogend.control.source import READ_LIMIT_S, Content, Parse, SourceError
from halogend.control.source_files import Signature, read_content, signature
from halogend.control.source_watch import Watch

_log = structlog.get_logger()
_STOP_S = 2.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. A burst is over after `trailing` of quiet, at the latest `longest` after it began; a
    directory that lost a file must stay so for `longest`. Bytes are read every `poll` in any case; where no
    events can be had, files are looked at every `blind`."""

    trailing: float = 0.2
    longest: float = 2.0
    poll: float = 5.0
    blind: float = 1.0


class FileSource:
    """`on_change` gets content that was not seen before. Single writer: its own task, and `seen`."""

    stays = False
    parse: Parse = staticmethod(parse)

    def __init__(
        self,
        path: Path,
        on_change: Callable[[Content], object],
        timing: Timing | None = None,
        watch: Callable[[Path, Callable[[], object]], Watch] = Watch,
    ) -> None:
        self.path = path
        self._on_change = on_change
        self._timing = timing or Timing()
        self._last_seen: str | None = None
        self._names: frozenset[str] = frozenset()
        self._maybe = asyncio.Event()
        self._make_watch = watch
        self._watch: Watch | None = None
        self._signature: Signature = ()
        self._read_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._unread: str | None = None
        self._asked_at: float | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self) -> Content:
        """The bytes now; a watch still takes them for new until they are `seen`. Blocks. Raises SourceError."""
        return read_content(self.path)

    def seen(self, content: Content) -> None:
        self._last_seen = content.digest
        self._names = _names(content)

    def pushed(self, content: Content) -> bool:
        """A push never becomes the user's file."""
        return False

    def view(self) -> dict[str, Any]:
        reason = None if self._watch is None else self._watch.reason
        return {"kind": "file", "watch": "poll" if reason else "events", "reason": reason, "unread": self._why_unread()}

    def _why_unread(self) -> str | None:
        """Why no edit is seen: the last look found nothing to read, or one does not come to an end."""
        if self._asked_at is not None and asyncio.get_running_loop().time() - self._asked_at > READ_LIMIT_S:
            return f"{self.path} does not answer; look for a mount whose server is gone"
        return self._unread

    def start(self) -> None:
        """Begins to watch. Where no watch can be had, looking serves."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                loop.call_soon_threadsafe(self._maybe.set)

        self._watch = self._make_watch(self.path, tell)
        self._task = asyncio.create_task(self._run(self._watch))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._watch is not None:
            with contextlib.suppress(TimeoutError):  # its folder does not answer: the end does not wait for that
                await aside(self._watch.stop, _STOP_S)

    async def _run(self, watch: Watch) -> None:
        while True:
            try:
                await self._turn(watch)
            except Exception:  # noqa: BLE001  whatever is wrong with one look must not end the watch
                _log.exception("source_look_failed", source=self.name)
                await asyncio.sleep(self._timing.poll)

    async def _turn(self, watch: Watch) -> None:
        """Waits for a sign of a change, and looks."""
        await self._ask(watch.keep)
        is_blind = watch.reason is not None
        is_told = await self._until_told(self._timing.blind if is_blind else self._timing.poll)
        self._maybe.clear()
        if is_told or await self._may_differ(is_blind=is_blind):
            await self._look()

    async def _until_told(self, limit_s: float) -> bool:
        """Waits for an event and then for the end of its burst; False where none came."""
        try:
            async with asyncio.timeout(limit_s):
                await self._maybe.wait()
        except TimeoutError:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timing.longest):
                while self._maybe.is_set():
                    self._maybe.clear()
                    await asyncio.sleep(self._timing.trailing)
        return True

    async def _may_differ(self, *, is_blind: bool) -> bool:
        """A look at the files' times and sizes; they may hide a change, so it is not the last word."""
        now, found = asyncio.get_running_loop().time(), await self._ask(lambda: signature(self.path))
        if is_blind and found == self._signature and now - self._read_at < self._timing.poll:
            return False
        self._signature, self._read_at = found, now
        return True

    async def _look(self) -> None:
        """Offers what is new once two readings agree: without events a writer may be in the middle."""
        content = await self._read_or_none()
        if content is None or content.digest == self._last_seen:
            return
        content = await self._settled(content)
        if content is None or is_unfinished(content.data) or content.digest == self._last_seen:
            return
        self.seen(content)
        self._on_change(content)

    async def _settled(self, content: Content | None) -> Content | None:
        loop, timing = asyncio.get_running_loop(), self._timing
        began = whole_at = loop.time()
        while True:
            await asyncio.sleep(timing.trailing)
            before, content = content, await self._read_or_none()
            now = loop.time()
            is_over = now - began >= timing.longest
            if content is None:
                if is_over:
                    return None
                continue
            has_lost = bool(self._names - _names(content))
            whole_at = whole_at if has_lost else now
            agrees = before is not None and before.digest == content.digest
            if (agrees or is_over) and (not has_lost or now - whole_at >= timing.longest):
                return content

    async def _read_or_none(self) -> Content | None:
        try:
            content = await self._ask(self.read)
        except SourceError as error:
            self._unread = str(error)
            return None
        self._unread = f"{self.path}, or a file in it, is empty" if is_unfinished(content.data) else None
        return content

    async def _ask(self, work: Callable[[], T]) -> T:
        """Of the file system, which may take for ever."""
        self._asked_at = asyncio.get_running_loop().time()
        try:
            return await aside(work)
        finally:
            self._asked_at = None


def _names(content: Content) -> frozenset[str]:
    """The files of a directory; of a single file none."""
    return frozenset(part.name for part in unpack(content.data) or ())
