"""What is recorded while the engine serves: after a live change that lets more requests into a step.

    steps   launched | launched | record | launched ... launched | record | replayed ...
    time                        |   t    |    9 t or more        |

One size at a time, between two steps, in a tenth of the time at most while anybody waits for tokens. Must never know
how a step is recorded.
"""

from __future__ import annotations

from collections.abc import Callable

from halogend.engine.interface import Recordings

_SHARE = 0.1
"""Of the time."""


class Recording:
    """Single writer: the loop, whose clock it goes by. With no `recordings` nothing is ever due."""

    def __init__(self, recordings: Recordings | None, clock: Callable[[], float]) -> None:
        self._recordings = recordings
        self._clock = clock
        self._is_open = False
        self._not_before = 0.0

    def expect(self, rows: int) -> None:
        """Steps of up to so many rows are to come."""
        if self._recordings is not None:
            self._recordings.expect(rows)
            self._is_open = True

    def is_due(self, now: float, *, is_busy: bool) -> bool:
        return self._is_open and (not is_busy or now >= self._not_before)

    def record(self) -> None:
        """One size more. No step may be in flight, whose time it would be counted to."""
        if self._recordings is None:
            return
        began = self._clock()
        self._is_open = self._recordings.record()
        ended = self._clock()
        self._not_before = ended + (ended - began) * (1 - _SHARE) / _SHARE
