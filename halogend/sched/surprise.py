"""By how much steps take longer than they usually do: all of them just now, and single ones again and again.

A machine that others use too is slower for a while, in everything alike: a factor that follows the last steps
quickly, so that what a step costs can be learnt slowly. What is left are single steps that take longer than
even that says; how much longer the worst of a window took is the margin to keep.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque

_HASTE = 0.1  # what the last step counts in how slow everything is
_PATIENCE_STEPS = 32  # before that it is more likely that what a step costs is not known well yet
_SETTLING = 0.01  # of it becomes the usual with every step
_MOST = 4.0  # a step that took more than this times what was expected says no more than that
_WINDOW_STEPS = 256
_QUANTILE = 0.98  # of the window; the worst of all while there are few
_MOST_MARGIN = 3.0


class Surprise:
    """`slowness` is what the costs of now are times the usual ones, `margin` (at least 1) what a step may take
    times what is expected of it. Single writer: the pacer."""

    def __init__(self) -> None:
        self.slowness = 1.0
        self.margin = 1.0
        self._window: deque[float] = deque()
        self._sorted: list[float] = []

    def learn(self, ratio: float) -> None:
        """A step took `ratio` times what it usually would."""
        surprise = min(ratio / self.slowness, _MOST)
        if len(self._window) == _WINDOW_STEPS:
            del self._sorted[bisect_left(self._sorted, self._window.popleft())]
        self._window.append(surprise)
        insort(self._sorted, surprise)
        worst = self._sorted[int(_QUANTILE * len(self._sorted))]
        self.margin = min(max(1.0, worst), _MOST_MARGIN)
        if len(self._window) >= _PATIENCE_STEPS:
            self.slowness *= 1 + _HASTE * (surprise - 1)

    def settle(self) -> float:
        """The part of the slowness that is taken to last from now on, as a factor."""
        factor = math.pow(self.slowness, _SETTLING)
        self.slowness /= factor
        return factor
