"""Who waits, in the order of arrival; a preempted request comes back to the place it had."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise, takewhile

from halogend.sched.errors import InvariantError
from halogend.sched.request import Sequence


class WaitingQueue:
    """Sequences by `order`, oldest first. Single writer: the scheduler."""

    def __init__(self) -> None:
        self._waiting: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._waiting)

    @property
    def head(self) -> Sequence | None:
        return self._waiting[0] if self._waiting else None

    def put(self, sequence: Sequence) -> None:
        """At its place: the end for a newcomer, near the head for one that ran before."""
        if not self._waiting or self._waiting[-1].order < sequence.order:
            self._waiting.append(sequence)
            return
        older = sum(1 for _ in takewhile(lambda other: other.order < sequence.order, self._waiting))
        self._waiting.insert(older, sequence)

    def remove(self, sequence: Sequence) -> None:
        if self._waiting and self._waiting[0] is sequence:
            self._waiting.popleft()
        else:
            self._waiting.remove(sequence)

    def audit(self) -> None:
        """Raises InvariantError unless the order holds and nobody who waits holds a slot or blocks."""
        if any(older.order >= newer.order for older, newer in pairwise(self._waiting)):
            raise InvariantError("the waiting requests are not in the order of arrival")
        if any(s.slot >= 0 or s.blocks or s.computed for s in self._waiting):
            raise InvariantError("a waiting request holds a slot or blocks")
