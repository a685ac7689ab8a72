"""A request's hold on a generation (its lease), and the answer that comes through it.

A request without a token may move: to the new generation at a switch, or once more after its
engine died. A moved request's earlier events are void; its consumer never sees them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from halogend.control.client import ENGINE_DIED, Order, failed
from halogend.control.replica import Replica
from halogend.control.requests import InferenceRequest, RequestError
from halogend.wire.requests import Accepted, Delta, Finished, TextEvent

log = structlog.get_logger(__name__)

Redispatch = Callable[["Answer"], Awaitable[None]]
Tap = Callable[[Delta], bool]
"""Takes a token's text the moment it comes, or leaves it to `events` (False). Must not wait."""


class Answer:
    """Single writer: the router, and the event callback of the current replica.

    `events` yields at most one Accepted, then Deltas, then exactly one Finished. With a `tap` a Delta before which
    nothing waits is offered there first: to wake whoever reads `events` costs more than all that is done with a
    token. `close` may be called at any time and frees the engine's memory within a step.
    """

    def __init__(self, model: str, request: InferenceRequest, seed: int, redispatch: Redispatch) -> None:
        self.model = model
        self.request = request
        self.seed = seed
        self.generation = 0
        self.began = time.monotonic()
        self.deaths = 0
        self.has_token = False
        self.holder: Replica | None = None
        self.failed_on: Replica | None = None
        self.tap: Tap | None = None
        self._redispatch = redispatch
        self._id = 0
        self._epoch = 0
        self._events: deque[TextEvent] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    def lease(self, replica: Replica, order: Order) -> None:
        """Takes a hold on `replica`, giving up the one before; what came from there is void."""
        self._abort()
        self._epoch += 1
        epoch = self._epoch
        self._events.clear()
        self._arrived.clear()
        self.holder, self.generation = replica, replica.generation
        replica.leases.add(self)
        self._id = replica.client.submit(order, lambda event: self._take(epoch, event))

    def end(self, code: str, message: str) -> None:
        """An honest end from our side: the generation goes away before the answer is complete."""
        request_id = self._id
        self._abort()
        self._epoch += 1
        self._push(failed(request_id, code, message))

    async def events(self) -> AsyncIterator[TextEvent]:
        accepted: Accepted | None = None
        while True:
            event = await self._next()
            if isinstance(event, Accepted):
                accepted = event
                continue
            if isinstance(event, Finished) and self._may_try_again(event):
                accepted = None
                self.deaths += 1
                try:
                    await self._redispatch(self)
                except RequestError as error:
                    yield failed(self._id, error.code, error.message)
                    return
                continue
            if accepted is not None:
                yield accepted
                accepted = None
            yield event
            if isinstance(event, Finished):
                return

    def close(self) -> None:
        """Idempotent; aborts when not finished."""
        self._closed = True
        self._abort()

    async def _next(self) -> TextEvent:
        while not self._events:
            self._arrived.clear()
            await self._arrived.wait()
        return self._events.popleft()

    def _may_try_again(self, event: Finished) -> bool:
        died = event.failure is not None and event.failure.code == ENGINE_DIED
        return died and not self.has_token and self.deaths == 0 and not self._closed

    def _take(self, epoch: int, event: TextEvent) -> None:
        if epoch != self._epoch:
            return
        if isinstance(event, Delta):
            self.has_token = True
            if self._is_tapped(event):
                return
        elif isinstance(event, Finished):
            self.failed_on = self.holder
            self._release()
        self._push(event)

    def _is_tapped(self, event: Delta) -> bool:
        if self.tap is None or self._events:
            return False
        try:
            return self.tap(event)
        except Exception:  # this request's fault, met again by its own reader; the stream brings others' tokens too
            log.exception("tap_failed", model=self.model)
            self.tap = None
            return False

    def _push(self, event: TextEvent) -> None:
        self._events.append(event)
        self._arrived.set()

    def _abort(self) -> None:
        if self.holder is not None:
            self.holder.client.abort(self._id)
            self._release()

    def _release(self) -> None:
        if self.holder is not None:
            self.holder.leases.discard(self)
            self.holder = None
