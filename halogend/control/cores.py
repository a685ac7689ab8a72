"""How many threads each engine may use: the cores, shared out among the engines that serve on them.

An engine alone gets all cores of its device. Where two serve on the same cores at once (two models, or
an old generation that drains) each gets its part, so that no two thread teams fight over a core.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from halogend.control.replica import Replica


class Cores:
    """Single writer: convergence, which tells who serves. An engine whose spec names no cores runs on all
    `count` of them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._engines: list[Replica] = []

    def share(self, cores: Sequence[int] = (), others: Iterable[Sequence[int]] = ()) -> int:
        """Threads for a newcomer on `cores` (none: all) beside the engines that serve; `others` are the cores of those
        that come with it."""
        return self._threads(cores, [*(each.spec.cores for each in self._engines), cores, *others])

    def join(self, *engines: Replica) -> None:
        """Those that serve from now on; one that does already is left alone."""
        if new := [each for each in engines if each not in self._engines]:
            self._engines += new
            self._tell()

    def leave(self, *engines: Replica) -> None:
        there = [each for each in self._engines if each not in engines]
        if there != self._engines:
            self._engines = there
            self._tell()

    def _tell(self) -> None:
        everybody = [each.spec.cores for each in self._engines]
        for engine in self._engines:
            engine.set_threads(self._threads(engine.spec.cores, everybody))

    def _threads(self, cores: Sequence[int], everybody: Iterable[Sequence[int]]) -> int:
        """An equal part of each of its cores, in whole cores."""
        sets = [frozenset(each) for each in everybody]
        roaming = sum(not each for each in sets)
        named = frozenset(cores) or frozenset[int]().union(*sets)
        part = sum((Fraction(1, roaming + sum(core in each for each in sets)) for core in named), Fraction())
        if not cores:  # and the cores that nobody names
            part += Fraction(max(0, self.count - len(named)), roaming)
        return max(1, int(part))
