"""What happens, as it happens: one bounded ring that any number of readers follow at their own pace.

Publishing waits for nobody and knows no reader. A reader is a place in the ring and not a queue of its own,
so however many there are, and however slow, they hold nothing; one that the ring has overtaken is told so.

    ring      [ 41 | 42 | 43 | 44 ]  45 is next, 40 and older are gone
    readers          ^a        ^b    a has taken 42, b has taken all; one at 39 has lost 40

Owns order and bounds. Must never know what an event is about, or who reads over which protocol.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

KEEP = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """`id` is `RUN-NUMBER`: numbers grow by one, and each run of the daemon counts anew. `at` is in epoch
    seconds, `data` JSON-ready and never changed again."""

    id: str
    number: int
    kind: str
    at: float
    data: dict[str, Any]


class EventsLostError(Exception):
    """The reader was slower than the ring is long; what it missed cannot be had any more."""


class Events:
    """Single writer: the event loop's tasks, through `publish` and `close`."""

    def __init__(self, keep: int = KEEP, clock: Callable[[], float] = time.time, run: str | None = None) -> None:
        self._ring: deque[Event] = deque(maxlen=keep)
        self._clock = clock
        self._run = run or secrets.token_hex(4)
        self._last = 0
        self._news = asyncio.Event()
        self.ended: str | None = None

    @property
    def last_id(self) -> str:
        """Of the newest event; of the place before the first where there is none."""
        return self.id_of(self._last)

    def id_of(self, number: int) -> str:
        return f"{self._run}-{number}"

    def publish(self, kind: str, /, **data: Any) -> None:
        """After `close` nothing is heard any more."""
        if self.ended is not None:
            return
        self._last += 1
        self._ring.append(Event(self.last_id, self._last, kind, self._clock(), data))
        self._wake()

    def close(self, reason: str) -> None:
        """Readers take what there is, and end. Idempotent: the first reason stays."""
        self.ended = self.ended or reason
        self._wake()

    def follow(self, after: str | None = None) -> Reader:
        """From the event behind `after`, an id; None: from now. Where that cannot be had any more, or never
        was of this run, the reader has a gap and begins now."""
        if after is None:
            return Reader(self, self._last, has_gap=False)
        run, _, digits = after.rpartition("-")
        number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else -1
        if run == self._run and self._last - len(self._ring) <= number <= self._last:
            return Reader(self, number, has_gap=False)
        return Reader(self, self._last, has_gap=True)

    def after(self, number: int) -> tuple[Event, ...]:
        """Those behind this number, oldest first. Raises EventsLostError."""
        behind = self._last - number
        if behind > len(self._ring):
            raise EventsLostError
        return tuple(islice(self._ring, len(self._ring) - behind, None))

    async def wait(self) -> None:
        """Returns when there is news, from this call on."""
        await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Reader:
    """One reader's place. `has_gap`: what it asked to go on from is not there."""

    def __init__(self, events: Events, number: int, *, has_gap: bool) -> None:
        self._events = events
        self._number = number
        self.has_gap = has_gap

    @property
    def place(self) -> str:
        """The id of the last event it has taken."""
        return self._events.id_of(self._number)

    async def next(self) -> tuple[Event, ...]:
        """All that it has not taken yet; waits for the first. Empty when there will be none: the reason is
        `Events.ended`. Raises EventsLostError. Cancelled, it has taken nothing."""
        while not (found := self._events.after(self._number)) and self._events.ended is None:
            await self._events.wait()
        if found:
            self._number = found[-1].number
        return found
