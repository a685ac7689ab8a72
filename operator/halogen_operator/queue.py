"""Whose turn it is: UIDs that wait to be looked at, each when it is due.

Owns back-off and the rule that a UID is never looked at twice at once. Must never know what looking at one means.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BackOff:
    """Seconds after the nth failure in a row: doubling from `shortest_s` to `longest_s`, up to a half less by chance.

    `chance` returns [0, 1).
    """

    shortest_s: float
    longest_s: float
    chance: Callable[[], float]

    def seconds(self, failures: int) -> float:
        """After this many failures in a row, at least one."""
        full = min(self.longest_s, self.shortest_s * 2.0 ** min(failures - 1, 62))
        return full * (1.0 - self.chance() / 2.0)


@dataclass
class Schedule:
    """When each UID is due, in seconds of the caller's clock. One writer: the queue."""

    due: dict[str, float] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    again: dict[str, float] = field(default_factory=dict)
    """Asked for while they run: due when they are done."""
    _heap: list[tuple[float, str]] = field(default_factory=list)

    def add(self, uid: str, when: float) -> None:
        """Due at `when`, or earlier if it was already."""
        waiting = self.again if uid in self.running else self.due
        if when < waiting.get(uid, float("inf")):
            waiting[uid] = when
            if waiting is self.due:
                heapq.heappush(self._heap, (when, uid))

    def take(self, now: float) -> str | None:
        """The one longest due, which runs from now on; None: nobody is."""
        while self._heap and (self._heap[0][0] <= now or not self._is_current(self._heap[0])):
            when, uid = heapq.heappop(self._heap)
            if self._is_current((when, uid)):
                del self.due[uid]
                self.running.add(uid)
                return uid
        return None

    def done(self, uid: str, when: float | None) -> None:
        """Runs no more; due at `when` (None: not by itself), or when it was asked for meanwhile."""
        self.running.discard(uid)
        asked = self.again.pop(uid, None)
        for moment in (when, asked):
            if moment is not None:
                self.add(uid, moment)

    def next_at(self) -> float | None:
        """When the next one is due."""
        return min(self.due.values(), default=None) if self.due else None

    def _is_current(self, entry: tuple[float, str]) -> bool:
        return self.due.get(entry[1]) == entry[0]


class Queue:
    """The schedule with a clock, failures counted and workers waiting. One event loop.

    `settle_s`: an event's UID is due this much later, so that the events of one change are one look.
    """

    def __init__(self, clock: Callable[[], float], back_off: BackOff, settle_s: float = 0.05) -> None:
        self._clock = clock
        self._back_off = back_off
        self._settle_s = settle_s
        self._schedule = Schedule()
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._is_closed = False

    @property
    def depth(self) -> int:
        """UIDs that are due now and wait for a worker."""
        now = self._clock()
        return sum(when <= now for when in self._schedule.due.values())

    def add(self, uid: str, after_s: float | None = None) -> None:
        """An event told of this UID: due in a moment, or after this many seconds."""
        self._schedule.add(uid, self._clock() + (self._settle_s if after_s is None else after_s))
        self._wake.set()

    async def take(self) -> str | None:
        """Waits for the next UID that is due, of which the taker says `done`, `failed` or `forget` when it has looked;
        None: the queue is closed."""
        while not self._is_closed:
            uid = self._schedule.take(self._clock())
            if uid is not None:
                return uid
            self._wake.clear()
            due = self._schedule.next_at()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                    await self._wake.wait()
        return None

    def close(self) -> None:
        """Nobody gets another UID."""
        self._is_closed = True
        self._wake.set()

    def done(self, uid: str, after_s: float) -> None:
        """Went well; to be looked at again after this many seconds at the latest."""
        self._failures.pop(uid, None)
        self._finish(uid, self._clock() + after_s)

    def failed(self, uid: str, at_least_s: float = 0.0) -> float:
        """Went wrong. Returns the seconds after which it is due again, at least what the server asked for."""
        self._failures[uid] = self._failures.get(uid, 0) + 1
        after_s = max(at_least_s, self._back_off.seconds(self._failures[uid]))
        self._finish(uid, self._clock() + after_s)
        return after_s

    def forget(self, uid: str) -> None:
        """Gone; nothing more of it until an event tells of it again."""
        self._failures.pop(uid, None)
        self._finish(uid, None)

    def _finish(self, uid: str, when: float | None) -> None:
        self._schedule.done(uid, when)
        self._wake.set()
