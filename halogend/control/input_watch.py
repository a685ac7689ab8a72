"""The slow look at small files a document names: keys and certificates.

A file that differs from what was read, and from what was seen last, is told once, when two looks in
a row agree. A file that is missing is somebody's middle, never a wish: what was read stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from halogend.control.aside import aside
from halogend.control.input_files import Signature, signature

_log = structlog.get_logger()


class InputWatch:
    """`read` gives the files in force as they were when they were read; `on_change` is told which one
    differs. Single writer: its own task."""

    def __init__(
        self,
        read: Callable[[], Mapping[Path, Signature]],
        on_change: Callable[[Path], object],
        every_s: float = 5.0,
        trailing_s: float = 0.2,
    ) -> None:
        self._read = read
        self._on_change = on_change
        self._every_s = every_s
        self._trailing_s = trailing_s
        self._seen: dict[Path, Signature] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.look()
            except Exception:  # noqa: BLE001  a key that is revoked later must not stay in force for it
                _log.exception("input_look_failed")

    async def look(self) -> None:
        """One look; several files that changed together are one change."""
        first = await aside(self._differing)
        if not first:
            return
        while True:
            await asyncio.sleep(self._trailing_s)
            again = await aside(self._differing)
            if again == first:
                break
            first = again
        if first:
            self._seen.update(first)
            self._on_change(next(iter(first)))

    def _differing(self) -> dict[Path, Signature]:
        differing: dict[Path, Signature] = {}
        for path, was in self._read().items():
            now = signature(path)
            if now is not None and now not in {was, self._seen.get(path)}:
                differing[path] = now
        return differing
