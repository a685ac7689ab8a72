"""One drain: how long requests of an old generation may go on, and who may end that early."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Drain:
    """`limit_s` counts from the making of it, but for the time in which it stands. Whoever waits for the requests waits
    for `hurried` as well; `by` then says who ended it, such as `uid:0`."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self.by = ""
        self._clock = clock
        self._began = clock()
        self._stood_at: float | None = None
        self._hurry = asyncio.Event()

    @property
    def left_s(self) -> float:
        """Until the limit; 0 behind it, and once it was ended."""
        now = self._clock() if self._stood_at is None else self._stood_at
        return 0.0 if self._hurry.is_set() else max(0.0, self._began + self.limit_s - now)

    def stand(self) -> None:
        """Its time is not counted, until it goes on."""
        self._stood_at = self._clock()

    def go_on(self) -> None:
        """The inverse of `stand`."""
        if self._stood_at is not None:
            self._began += self._clock() - self._stood_at
            self._stood_at = None

    def end(self, by: str) -> None:
        """Idempotent: the first stays."""
        self.by = self.by or by
        self._hurry.set()

    async def hurried(self) -> None:
        await self._hurry.wait()
