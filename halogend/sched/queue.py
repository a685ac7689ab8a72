"""Who waits, and in which order: the higher priority, then who ran before, then the fair share, then arrival."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import pairwise

from halogend.sched.errors import InvariantError
from halogend.sched.request import Sequence

Line = list[Sequence]


class WaitingQueue:
    """For each priority two lines, the short and the long, each by `rank`. Single writer: the scheduler.

    priority 10   short  a b c       rank: who was preempted first, by arrival;
                  long   d                 then the others by their fair tag, then by arrival
    priority 0    short  e f
                  long   g h
    """

    def __init__(self) -> None:
        self._lines: dict[int, tuple[Line, Line]] = {}  # no priority without anybody
        self._count = 0
        self._tokens = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        for priority in self.priorities:
            for line in self._lines[priority]:
                yield from line

    @property
    def tokens(self) -> int:
        """Of all prompts that wait."""
        return self._tokens

    @property
    def long_count(self) -> int:
        return sum(len(lines[True]) for lines in self._lines.values())

    @property
    def priorities(self) -> list[int]:
        """Of those who wait, highest first."""
        return sorted(self._lines, reverse=True)

    @property
    def head(self) -> Sequence | None:
        """Who comes before all others, in whichever lane."""
        if not self._lines:
            return None
        return min((line[0] for line in self._lines[max(self._lines)] if line), key=_rank)

    def line(self, priority: int, *, long: bool) -> Line:
        """To read only."""
        lines = self._lines.get(priority)
        return [] if lines is None else lines[long]

    def put(self, sequence: Sequence) -> None:
        """At its place: behind those of its rank for a newcomer, before them for one that ran."""
        tag = 0.0 if sequence.admitted else sequence.tag
        sequence.rank = (not sequence.admitted, tag, sequence.order)
        insort(self._lines.setdefault(sequence.priority, ([], []))[sequence.long], sequence, key=_rank)
        self._count += 1
        self._tokens += len(sequence.request.prompt)

    def remove(self, sequence: Sequence) -> None:
        """Raises InvariantError for one that does not wait."""
        priority = sequence.priority
        line = self.line(priority, long=sequence.long)
        place = bisect_left(line, sequence.rank, key=_rank)
        if place == len(line) or line[place] is not sequence:
            raise InvariantError(f"request {sequence.request.id} does not wait")
        del line[place]
        if not any(self._lines[priority]):
            del self._lines[priority]
        self._count -= 1
        self._tokens -= len(sequence.request.prompt)

    def take_all(self) -> list[Sequence]:
        """Whoever waits, in the order of arrival; nobody waits any more."""
        waiting = sorted(self, key=_order)
        self._lines.clear()
        self._count = self._tokens = 0
        return waiting

    def audit(self) -> None:
        """Raises InvariantError unless the order holds and nobody who waits holds a slot or blocks."""
        for lines in self._lines.values():
            for long, line in enumerate(lines):
                if any(older.rank >= newer.rank for older, newer in pairwise(line)):
                    raise InvariantError("the waiting requests are not in their order")
                if any(s.long != bool(long) for s in line):
                    raise InvariantError("a request waits in the wrong lane")
        waiting = list(self)
        if len(waiting) != self._count or sum(len(s.request.prompt) for s in waiting) != self._tokens:
            raise InvariantError("the waiting requests or their tokens are miscounted")
        if any(s.slot >= 0 or s.blocks or s.computed for s in waiting):
            raise InvariantError("a waiting request holds a slot or blocks")


def _order(sequence: Sequence) -> int:
    return sequence.order


def _rank(sequence: Sequence) -> tuple[bool, float, int]:
    return sequence.rank
