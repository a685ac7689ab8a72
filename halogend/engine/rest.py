"""What an engine does for its memory while nobody asks anything of it, and when.

    0 s       60 s                     600 s
    | idle    | what is cached moves   | what is cached goes, but for what is pinned: the pool is at its
    |         | down, the rest of the  | its floor again
    |         | memory goes back       | floor again, and once more for pins that end later

Knows times only: the loop does what is due.
"""

from __future__ import annotations

from enum import Enum


class Chore(Enum):
    """`value`: after how many idle seconds."""

    AUDIT = 1.0
    COMPACT = 60.0
    FLOOR = 600.0


AUDIT_EVERY_S = 60.0
"""At most: an audit of a large pool takes a tenth of a second, which the next request would wait for."""


class Rest:
    """Since when the engine rests and what it has done since. One writer: the loop."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._left = list(Chore)
        self._audited: float | None = None

    def wake(self) -> None:
        """There is work."""
        if self._since is not None:
            self._since, self._left = None, list(Chore)

    def due(self, now: float) -> list[Chore]:
        """What is to be done now, with nothing to compute; each is named once a rest."""
        if self._since is None:
            self._since = now
        due = [chore for chore in self._left if now >= self._when(chore, self._since)]
        self._left = [chore for chore in self._left if chore not in due]
        if Chore.AUDIT in due:
            self._audited = now
        return due

    def again(self, chore: Chore) -> None:
        """There is something to do for it once more, if it was done in this rest."""
        if self._since is not None and chore not in self._left:
            self._left.append(chore)

    def due_in(self, now: float) -> float | None:
        """Seconds until the next chore; None when all is done."""
        if self._since is None or not self._left:
            return None
        since = self._since
        return max(0.0, min(self._when(chore, since) for chore in self._left) - now)

    def _when(self, chore: Chore, since: float) -> float:
        when = since + chore.value
        if chore is Chore.AUDIT and self._audited is not None:
            return max(when, self._audited + AUDIT_EVERY_S)
        return when
