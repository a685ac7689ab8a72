"""Gets state to the disk without ever making the daemon wait for one.

Of several writes of one file only the newest is made; files are written in the order of their last
change. A disk that is full or gone is told once, and again when it is back; nothing else comes of it.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from halogend.control.state_dir import StateDir

_log = structlog.get_logger()
_FLUSH_S = 5.0


class StateWriter:
    """Single writer of the folder. `trouble` says why the newest write was not made."""

    def __init__(self, folder: StateDir) -> None:
        self.folder = folder
        self.trouble: str | None = None
        self._wanted: dict[str, bytes | None] = {}
        self._some = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.create_task(self._run())

    def write(self, name: str, data: bytes) -> None:
        self._want(name, data)

    def remove(self, name: str) -> None:
        self._want(name, None)

    async def stop(self) -> None:
        """What is wanted is written first, but a stuck disk holds nobody up for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._idle.wait()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.folder.close()

    def _want(self, name: str, data: bytes | None) -> None:
        self._wanted.pop(name, None)
        self._wanted[name] = data
        self._idle.clear()
        self._some.set()

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            while self._wanted:
                name = next(iter(self._wanted))
                data = self._wanted.pop(name)
                await asyncio.to_thread(self._make, name, data)
            self._some.clear()
            self._idle.set()

    def _make(self, name: str, data: bytes | None) -> None:
        try:
            if data is None:
                self.folder.remove(name)
            else:
                self.folder.write(name, data)
        except OSError as error:
            reason = error.strerror or str(error)
            if self.trouble is None:
                _log.error("state_not_written", path=str(self.folder.path / name), error=reason)
            self.trouble = reason
            return
        if self.trouble is not None:
            _log.info("state_written_again", path=str(self.folder.path))
        self.trouble = None
