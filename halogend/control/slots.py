"""How many loads may run at once: the next in line begins as soon as there is a place."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """Places in the order of asking. The number of places may change while some are taken: with fewer,
    whoever is in goes on, and nobody follows until enough have left. `taken`: by how many."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def resize(self, count: int) -> None:
        self.count = count
        self._admit()

    async def acquire(self) -> None:
        """Cancelled, it takes no place and keeps none."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._admit()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()
            raise

    def release(self) -> None:
        self.taken -= 1
        self._admit()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def _admit(self) -> None:
        while self._waiting and self.taken < self.count:
            place = self._waiting.popleft()
            if not place.done():
                self.taken += 1
                place.set_result(None)
