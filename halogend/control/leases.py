"""Requests' holds on a replica: as long as there are any it is not let go."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import Protocol


class Lease(Protocol):
    """A request's hold on a replica, as the replica sees it."""

    has_token: bool

    def end(self, code: str, message: str) -> None: ...


class Leases(Collection[Lease]):
    """Those of one replica. Single writer: the requests themselves."""

    def __init__(self) -> None:
        self._held: set[Lease] = set()
        self._idle = asyncio.Event()

    def __contains__(self, lease: object) -> bool:
        return lease in self._held

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, lease: Lease) -> None:
        self._held.add(lease)

    def discard(self, lease: Lease) -> None:
        """Of one that was not held too."""
        self._held.discard(lease)
        if not self._held:
            self._idle.set()

    async def ended(self) -> None:
        """Returns when there are none."""
        while self._held:
            self._idle.clear()
            await self._idle.wait()
