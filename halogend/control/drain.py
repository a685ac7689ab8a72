"""One drain: how long requests of an old generation may go on, and who may end that early."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Drain:
    """`limit_s` counts from the making of it. Whoever waits for the requests waits for `hurried` as well;
    `by` then says who ended it, such as `uid:0`."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self.by = ""
        self._clock = clock
        self._began = clock()
        self._hurry = asyncio.Event()

    @property
    def left_s(self) -> float:
        """Until the limit; 0 behind it, and once it was ended."""
        return 0.0 if self._hurry.is_set() else max(0.0, self._began + self.limit_s - self._clock())

    def end(self, by: str) -> None:
        """Idempotent: the first stays."""
        self.by = self.by or by
        self._hurry.set()

    async def hurried(self) -> None:
        await self._hurry.wait()
