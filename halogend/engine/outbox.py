"""What goes to the text process: one frame a step for the whole batch.

Owns what has ended and was not told yet. Must never know why anything ended, or when a step is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from halogend.engine.endings import ended, failed
from halogend.engine.meter import StepMeter
from halogend.sched.request import End, Events
from halogend.wire.channel import WorkerChannel
from halogend.wire.requests import Ended, Sampled, StepOutput


class Outbox:
    """Single writer: the loop. `forget` is called with the id of each request that has ended."""

    def __init__(
        self, data: WorkerChannel, meter: StepMeter, forget: Callable[[int], None], clock: Callable[[], float]
    ) -> None:
        self._data = data
        self._meter = meter
        self._forget = forget
        self._clock = clock
        self._refused: list[Ended] = []
        self._ended: list[End] = []

    def refuse(self, request_id: int, code: str, message: str) -> None:
        """It was never taken."""
        self._refused.append(failed(request_id, code, message))

    def end(self, ends: Iterable[End]) -> None:
        """They are told with the next frame."""
        self._ended.extend(ends)

    def publish(self, events: Events) -> None:
        """What a step brought, and what has ended since. Nothing is sent where there is nothing to tell."""
        self.end(events.ended)
        for end in self._ended:
            self._forget(end.id)
        ends = (*self._refused, *map(ended, self._ended))
        self._refused, self._ended = [], []
        if not events.sampled and not ends and not events.reused:
            return
        self._meter.told(events, (end.id for end in ends), self._clock())
        sampled = tuple(Sampled(id=request_id, token=token) for request_id, token in events.sampled)
        self._data.send(StepOutput(sampled=sampled, ended=ends, reused=events.reused))
