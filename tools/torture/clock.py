"""One time for several processes: seconds of the epoch that never step."""

from __future__ import annotations

import time


class Clock:
    """What `time.time` was at the start, moved on by the monotonic clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()
