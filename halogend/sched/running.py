"""Who runs, the higher priority and the older first, each in a slot of its own."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator
from itertools import pairwise

from halogend.sched.errors import InvariantError
from halogend.sched.request import Sequence


class RunningSet:
    """Sequences by priority, then by `order`; the lowest free slot is given first, so that slots stay
    under the largest number that ever ran at once. Single writer: the scheduler."""

    def __init__(self) -> None:
        self._running: list[Sequence] = []
        self._free_slots: list[int] = []
        self._slots = 0

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._running)

    @property
    def victim(self) -> Sequence:
        """Who gives way when somebody must: of the lowest priority the newest."""
        return self._running[-1]

    def enter(self, sequence: Sequence) -> None:
        insort(self._running, sequence, key=_place)
        if self._free_slots:
            sequence.slot = heapq.heappop(self._free_slots)
        else:
            sequence.slot = self._slots
            self._slots += 1

    def leave(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        heapq.heappush(self._free_slots, sequence.slot)
        sequence.slot = -1

    def sort(self) -> None:
        """Priorities are others from now on."""
        self._running.sort(key=_place)

    def audit(self) -> None:
        """Raises InvariantError unless order, slots and each one's progress make sense."""
        if any(_place(first) >= _place(second) for first, second in pairwise(self._running)):
            raise InvariantError("the running requests are not in their order")
        if sorted([*self._free_slots, *(s.slot for s in self._running)]) != list(range(self._slots)):
            raise InvariantError("a slot is lost or used twice")
        for s in self._running:
            if s.computed > len(s.tokens) + s.pending:
                raise InvariantError(f"request {s.request.id} is computed beyond its tokens")


def _place(sequence: Sequence) -> tuple[int, int]:
    return -sequence.priority, sequence.order
