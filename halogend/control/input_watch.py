"""The slow look at small files a document names: keys and certificates.

A file that differs from what was read, and from what was seen last, is told once, when two looks in
a row agree. A file that is missing is somebody's middle, never a wish: what was read stays. One whose file system
does not answer is waited for once, by itself; the others are looked at as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import structlog

from halogend.control.aside import aside
from halogend.control.input_files import Signature, signature

_log = structlog.get_logger()


class InputWatch:
    """`read` gives the files in force as they were when they were read; `on_change` is told which one
    differs, and which do not answer. Single writer: its own task."""

    def __init__(
        self,
        read: Callable[[], Mapping[Path, Signature]],
        on_change: Callable[[Path, frozenset[Path]], object],
        every_s: float = 5.0,
        trailing_s: float = 0.2,
        limit_s: float = 5.0,
    ) -> None:
        self._read = read
        self._on_change = on_change
        self._every_s = every_s
        self._trailing_s = trailing_s
        self._limit_s = limit_s
        self._seen: dict[Path, Signature] = {}
        self._looks: dict[Path, asyncio.Task[Signature | None]] = {}
        self._silent: frozenset[Path] = frozenset()

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._every_s)
                try:
                    await self.look()
                except Exception:  # noqa: BLE001  a key that is revoked later must not stay in force for it
                    _log.exception("input_look_failed")
        finally:
            for look in self._looks.values():
                look.cancel()

    async def look(self) -> None:
        """One look; several files that changed together are one change."""
        first = await self._differing()
        if not first:
            return
        while True:
            await asyncio.sleep(self._trailing_s)
            again = await self._differing()
            if again == first:
                break
            first = again
        if first:
            self._seen.update(first)
            self._on_change(next(iter(first)), self._silent)

    async def _differing(self) -> dict[Path, Signature]:
        was = dict(self._read())
        for path in was:
            if path not in self._looks:
                self._looks[path] = asyncio.create_task(aside(partial(signature, path)))
        asked = {self._looks[path] for path in was if path not in self._silent}
        if asked:
            await asyncio.wait(asked, timeout=self._limit_s)
        found = {path: self._looks.pop(path) for path in list(self._looks) if self._looks[path].done()}
        self._tell(frozenset(was.keys() - found.keys()))
        signatures = {path: now for path, look in found.items() if path in was and (now := look.result()) is not None}
        return {path: now for path, now in signatures.items() if now not in {was[path], self._seen.get(path)}}

    def _tell(self, silent: frozenset[Path]) -> None:
        """Once each."""
        for path in silent - self._silent:
            _log.warning("input_does_not_answer", path=str(path), hint="look for a mount whose server is gone")
        for path in self._silent - silent:
            _log.info("input_answers_again", path=str(path))
        self._silent = silent
