"""How long loads take here: by their sizes, until some like them were made.

Sizes say what a load takes on cores that are free. Beside engines that serve it comes after them, and how much longer
that makes it nobody knows beforehand; what such loads took lately is the best there is to say. Owns what is remembered
of them, and no clock.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass
from typing import Any

_KEPT = 32
_COUNTED = 5  # of those alike, the newest: what is served, and how much, changes with the hours
_ALIKE = 2.0  # by size, so many times as long or as short: a small model says little of a large one


@dataclass(frozen=True, slots=True)
class Took:
    """A load that was made: what its sizes said, what it took until it could serve, and whether others served or
    loaded meanwhile."""

    by_size_s: float
    seconds: float
    in_company: bool


@dataclass(frozen=True, slots=True)
class Expected:
    """What is most likely, and the least and the most that `learned_from` loads like it took, for its size. 0: none was
    made yet, and its sizes alone say it."""

    seconds: float
    least_s: float
    most_s: float
    learned_from: int = 0

    @classmethod
    def by_size(cls, seconds: float) -> Expected:
        return cls(seconds, seconds, seconds)

    def view(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "expected_s": round(self.seconds, 1),
            "expected_least_s": round(self.least_s, 1),
            "expected_most_s": round(self.most_s, 1),
            "learned_from": self.learned_from,
        }


class Pace:
    """Single writer: whoever loads."""

    def __init__(self) -> None:
        self._made: deque[Took] = deque(maxlen=_KEPT)

    def note(self, took: Took) -> None:
        self._made.append(took)

    def expect(self, by_size_s: float, *, in_company: bool) -> Expected:
        """Of a load that its sizes say takes so long."""
        alike = [
            each.seconds / each.by_size_s
            for each in self._made
            if each.in_company == in_company and 1 / _ALIKE <= each.by_size_s / by_size_s <= _ALIKE
        ][-_COUNTED:]
        if not alike:
            return Expected.by_size(by_size_s)
        likely, least, most = (share * by_size_s for share in (statistics.median(alike), min(alike), max(alike)))
        return Expected(likely, least, most, len(alike))
