"""The daemon's end of a generation's data socket: requests in, each request's events out.

The reader never waits for a consumer: an event is handed to its request's callback at once.
When the stream ends, every open request gets its one terminal event.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from halogend.wire.channel import AsyncChannel
from halogend.wire.failure import Failure
from halogend.wire.messages import AnyMessage
from halogend.wire.policy import Caller
from halogend.wire.requests import Abort, Finished, Prompt, Sampling, Submit, TextEvent, TextEvents, Usage

OnEvent = Callable[[TextEvent], None]
NO_USAGE = Usage(prompt_tokens=0, completion_tokens=0)
ENGINE_DIED = "engine_died"


@dataclass(frozen=True, slots=True)
class Order:
    """A request in the engine's terms: nothing left to default."""

    prompt: Prompt
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]
    caller: Caller = field(default_factory=Caller)


def failed(request_id: int, code: str, message: str) -> Finished:
    """A terminal event that says why."""
    return Finished(id=request_id, reason="error", usage=NO_USAGE, failure=Failure(code=code, message=message))


class Client:
    """One generation's requests. `subject` names it in messages, as in `chat generation 3`."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._channel: AsyncChannel | None = None
        self._open: dict[int, OnEvent] = {}
        self._next_id = 1

    @property
    def is_closed(self) -> bool:
        return self._channel is None or self._channel.closed

    async def connect(self, sock: socket.socket) -> None:
        self._channel = await AsyncChannel.open(sock, self._receive, self._lost)

    def submit(self, order: Order, on_event: OnEvent) -> int:
        """Sends the request; its events arrive at `on_event` from the event loop, the last one is
        Finished. On a dead generation the terminal event arrives before this returns."""
        request_id = self._next_id
        self._next_id += 1
        message = Submit(
            id=request_id,
            prompt=order.prompt,
            sampling=order.sampling,
            max_tokens=order.max_tokens,
            stop=order.stop,
            caller=order.caller,
        )
        if self._channel is None or self._channel.closed:
            on_event(failed(request_id, ENGINE_DIED, f"{self._subject} is not running"))
            return request_id
        self._channel.send(message)
        self._open[request_id] = on_event
        return request_id

    def abort(self, request_id: int) -> None:
        """The requester is gone: no further event, and the engine frees everything."""
        if self._open.pop(request_id, None) is not None and self._channel is not None and not self._channel.closed:
            self._channel.send(Abort(id=request_id))

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _receive(self, message: AnyMessage) -> None:
        if not isinstance(message, TextEvents):
            return
        for event in message.events:
            last = isinstance(event, Finished)
            on_event = self._open.pop(event.id, None) if last else self._open.get(event.id)
            if on_event is not None:
                on_event(event)

    def _lost(self, error: Exception | None) -> None:
        self._channel = None
        orphans, self._open = self._open, {}
        reason = f"{self._subject} died while it was answering" + (f": {error}" if error else "")
        for request_id, on_event in orphans.items():
            on_event(failed(request_id, ENGINE_DIED, reason))
