"""The clock of a replica's watch: its workers are judged each second and measured now and then.

What is judged and how is others' business.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

import structlog

_log = structlog.get_logger()
_EVERY_S = 1.0
_MEASURE_EVERY = 10


async def watch_over(
    replica: str, judge: Callable[[float, float], None], measure: Callable[[], Awaitable[None]]
) -> None:
    """Until it is cancelled. `judge` gets the time and by how much it is late."""
    due = time.monotonic()
    for tick in itertools.count(1):
        due += _EVERY_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        now = time.monotonic()
        late_s, due = now - due, now
        try:
            judge(now, late_s)
            if tick % _MEASURE_EVERY == 0:
                await measure()
        except Exception:  # noqa: BLE001  whatever is wrong with one look, the next may find a wedged worker
            _log.exception("watch_failed", replica=replica)
