"""One request from its submission to its last event: measured, and closed whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import structlog
from starlette.types import Message

from halogend.api.bodies import ClientGoneError
from halogend.api.errors import from_failure, internal_error, is_fault
from halogend.api.ports import Answer, Router
from halogend.control.requests import InferenceRequest, RequestError
from halogend.obs.metrics import UNKNOWN_MODEL, Metrics
from halogend.wire.requests import Delta, Finished

log = structlog.get_logger(__name__)
T = TypeVar("T")
_COMPLETE = frozenset({"stop", "length"})


def model_label(router: Router, name: str) -> str:
    """The canonical name behind what a client asked for; a name from outside becomes no label."""
    for model in router.served():
        if name == model.name or name in model.aliases:
            return model.name
    return UNKNOWN_MODEL


class Exchange:
    """Single use. `began` is when the request arrived, by `clock`. `answer` is set once the router
    gave one; `events` closes it at its end."""

    def __init__(
        self,
        router: Router,
        metrics: Metrics,
        request: InferenceRequest,
        clock: Callable[[], float],
        began: float,
    ) -> None:
        self._router = router
        self._metrics = metrics
        self._request = request
        self._clock = clock
        self._began = began
        self._token_at: float | None = None
        self.answer: Answer | None = None

    async def events(self) -> AsyncGenerator[Delta | Finished, None]:
        """Deltas, then one Finished without failure. Raises RequestError for every other end."""
        outcome = "cancelled"
        try:
            self.answer = await self._router.submit(self._request)
            async for event in self.answer.events():
                if isinstance(event, Delta):
                    self._mark_token(event)
                    yield event
                elif isinstance(event, Finished):
                    outcome = _reason_of(event)  # complete, even if the reader leaves now
                    yield event
        except RequestError as error:
            outcome = error.code
            raise
        except Exception as error:  # our own bug: this request fails, the others go on
            outcome = "internal_error"
            log.exception("request_failed_by_our_bug")
            raise internal_error() from error
        finally:
            if self.answer is not None:
                self.answer.close()
                self.answer.tap = None
            seconds = self._clock() - self._began
            self._metrics.request_ended(self._label(), outcome, seconds)
            if self.answer is not None and (outcome in _COMPLETE or is_fault(outcome)):
                self._router.record_end(self.model, self.answer.generation, is_error=is_fault(outcome))
            if outcome in _COMPLETE:
                self._router.record_duration(self.model, seconds)

    def tap(self, write: Callable[[str], bool]) -> None:
        """From now on text goes to `write` as soon as it is here, as long as nothing waits before it. What that does
        not take (False) comes by `events`, and so does whatever follows until it was taken there."""

        def take(event: Delta) -> bool:
            if event.text and not write(event.text):
                return False
            self._mark_token(event)
            return True

        if self.answer is not None:
            self.answer.tap = take

    @property
    def model(self) -> str:
        """The canonical name; of use once there is an answer."""
        return self._request.model if self.answer is None else self.answer.model

    def _mark_token(self, event: Delta) -> None:
        if event.tokens == 0:
            return
        now = self._clock()
        if self._token_at is None:
            self._metrics.first_token(self.model, now - self._began)
        else:
            self._metrics.token_gap(self.model, now - self._token_at)
        self._token_at = now

    def _label(self) -> str:
        return model_label(self._router, self._request.model) if self.answer is None else self.answer.model


def _reason_of(event: Finished) -> str:
    if event.failure is not None:
        raise from_failure(event.failure)
    return event.reason


async def collect(exchange: Exchange) -> tuple[str, Finished]:
    """The whole text and the end. Raises RequestError."""
    texts: list[str] = []
    finished: Finished | None = None
    async with aclosing(exchange.events()) as events:
        async for event in events:
            if isinstance(event, Finished):
                finished = event
            else:
                texts.append(event.text)
    if finished is None:
        raise unfinished(exchange)
    return "".join(texts), finished


def unfinished(exchange: Exchange) -> RequestError:
    """The answer broke its promise of one Finished: our own bug."""
    log.error("answer_without_end", model=exchange.model)
    return internal_error()


async def until_gone(receive: Callable[[], Awaitable[Message]], work: Coroutine[Any, Any, T]) -> T:
    """Runs `work`, and cancels it as soon as the client goes away: then raises ClientGoneError.

    The body must have been read: what `receive` brings from then on is the disconnect.
    """
    worker = asyncio.create_task(work)
    watcher = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait({worker, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if worker.done():
            return worker.result()
        raise ClientGoneError
    finally:
        worker.cancel()
        watcher.cancel()
        await asyncio.gather(worker, watcher, return_exceptions=True)


async def _disconnect(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
