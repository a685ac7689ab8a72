"""Gets state to the disk without ever making the daemon wait for one.

Of several writes of one file only the newest is made; files are written in the order of their last
change. What a disk that is full or gone did not take stays owed, and is tried again until it is there;
the trouble is told once, and again when nothing is owed any more.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from halogend.control.state_dir import StateDir

_log = structlog.get_logger()
_FLUSH_S = 5.0
_RETRY_S = 5.0


class StateWriter:
    """Single writer of the folder. `trouble` says why something is owed, None where nothing is."""

    def __init__(self, folder: StateDir, retry_s: float = _RETRY_S) -> None:
        self.folder = folder
        self.trouble: str | None = None
        self._retry_s = retry_s
        self._wanted: dict[str, bytes | None] = {}
        self._owed: dict[str, bytes | None] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._some = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.create_task(self._run())

    def write(self, name: str, data: bytes) -> None:
        self._want(name, data)

    def remove(self, name: str) -> None:
        self._want(name, None)

    async def stop(self) -> None:
        """What is wanted is written first, and what is owed tried once more, but a stuck disk holds nobody
        up for ever."""
        self._want_what_is_owed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._idle.wait()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._end_retry()
        self.folder.close()

    def _want(self, name: str, data: bytes | None) -> None:
        self._owed.pop(name, None)
        self._wanted.pop(name, None)
        self._wanted[name] = data
        self._idle.clear()
        self._some.set()

    def _want_what_is_owed(self) -> None:
        """Before what was asked for since: it was asked for earlier."""
        self._end_retry()
        if self._owed:
            self._wanted = {**self._owed, **self._wanted}
            self._owed = {}
            self._idle.clear()
            self._some.set()

    def _end_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            while self._wanted:
                name = next(iter(self._wanted))
                data = self._wanted.pop(name)
                failed = await asyncio.to_thread(self._make, name, data)
                if failed is not None:
                    self._owe(name, data, failed)
            if self.trouble is not None and not self._owed:
                _log.info("state_written_again", path=str(self.folder.path))
                self.trouble = None
            self._some.clear()
            self._idle.set()

    def _owe(self, name: str, data: bytes | None, failed: str) -> None:
        """A newer wish for the same file may have come while this one was tried."""
        if self.trouble is None:
            _log.error("state_not_written", path=str(self.folder.path / name), error=failed)
        self.trouble = failed
        if name not in self._wanted:
            self._owed[name] = data
        if self._owed and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._want_what_is_owed)

    def _make(self, name: str, data: bytes | None) -> str | None:
        """Returns why it could not be made."""
        try:
            if data is None:
                self.folder.remove(name)
            else:
                self.folder.write(name, data)
        except OSError as error:
            return error.strerror or str(error)
        return None
