"""Rest between steps, so that a hot device cools: a share of the time, in proportion to what was computed.

Knows no temperature: the daemon does.
"""

from __future__ import annotations

MOST_S = 1.0
"""At once: streams go on, and whoever watches the engine sees it move."""


class Cooling:
    """Single writer: the loop. Times are of its clock."""

    def __init__(self) -> None:
        self._share = 0.0
        self._until = 0.0

    def set(self, share: float) -> None:
        """Of the time; below 1. The rest that is being had ends where there is to be none."""
        self._share = share
        if not share:
            self._until = 0.0

    @property
    def is_on(self) -> bool:
        """Is there to be any rest?"""
        return self._share > 0

    def computed(self, seconds: float, now: float) -> None:
        """A step that took so long is over, and no other has begun."""
        self._until = now + min(MOST_S, seconds * self._share / (1 - self._share))

    def left_s(self, now: float) -> float:
        """How long still nothing is computed."""
        return max(0.0, self._until - now)
