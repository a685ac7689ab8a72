"""The first part of a generation's life: until both halves are ready and a real token has come."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from halogend.config.codes import Code
from halogend.control.client import Client, Order
from halogend.control.doing import Doing
from halogend.control.health import Pulse
from halogend.wire.control import EngineReady, TextReady
from halogend.wire.failure import Failure
from halogend.wire.requests import Finished, Sampling, TextEvent, TextPrompt, TokenPrompt

_GREEDY = Sampling(
    temperature=0.0,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    seed=0,
)


class StartError(Exception):
    """A generation did not come up; `failure` says why, `tail` is what its processes last wrote."""

    def __init__(self, failure: Failure, tail: str = "") -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure
        self.tail = tail


@dataclass(frozen=True, slots=True)
class Ready:
    """What was learnt by loading."""

    text: TextReady
    engine: EngineReady


class Startup:
    """`ready` is done when both processes are, or carries the first StartError. Single writer: the
    generation."""

    def __init__(self, model: str) -> None:
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._fault: StartError | None = None  # the first one, before or after it was ready
        self._model = model
        self._text: TextReady | None = None
        self._engine: EngineReady | None = None

    @property
    def kernels(self) -> dict[str, str]:
        """Operator to implementation; empty until it is loaded."""
        return {} if self._engine is None else self._engine.kernels

    def take(self, message: TextReady | EngineReady) -> None:
        if isinstance(message, TextReady):
            self._text = message
        else:
            self._engine = message
        if self._text is not None and self._engine is not None and not self.ready.done():
            self.ready.set_result(Ready(self._text, self._engine))

    def error(self, code: str, message: str, tail: str = "") -> StartError:
        return StartError(Failure(code=code, message=f"{self._model}: {message}"), tail)

    def fail(self, code: str, message: str, tail: str = "") -> None:
        self._set(self.error(code, message, tail))

    def refuse(self, failure: Failure, tail: str) -> None:
        """A process said itself why it cannot start."""
        self._set(StartError(failure, tail))

    async def first_token(self, client: Client, prompt: str, limit_s: float) -> None:
        """One greedy token through the whole path. Raises StartError; that a process ended is the
        better reason than what came of it."""
        try:
            await _first_token(client, prompt, limit_s)
        except StartError as error:
            raise self._fault or error from error

    def check_alive(self, exited: Mapping[str, asyncio.Event]) -> None:
        """Raises StartError when a process went after it was ready."""
        for role, event in exited.items():
            if event.is_set():
                raise self.error(Code.START_FAILED, f"the {role} process ended as it was to serve")

    def judge(self, pulses: Mapping[str, Pulse], now: float, limit_s: float, doing: Mapping[str, Doing]) -> None:
        """Fails the start when a process that is not ready has not moved for `limit_s`; says what it was doing."""
        waiting = {"text": self._text is None, "engine": self._engine is None}
        for role, pulse in pulses.items():
            if waiting[role] and pulse.still_s(now) > limit_s:
                what = f" {doing[role]}" if role in doing else ""
                why = f"loading made no progress for {limit_s:g} s (the {role} process{what})"
                self.fail(Code.LOAD_NO_PROGRESS, why)

    def _set(self, error: StartError) -> None:
        self._fault = self._fault or error
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # seen here: a start that was cancelled never awaits it


async def _first_token(client: Client, prompt: str, limit_s: float) -> None:
    done: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()

    def on_event(event: TextEvent) -> None:
        if isinstance(event, Finished) and not done.done():
            done.set_result(event)

    warmup = TextPrompt(text=prompt) if prompt else TokenPrompt(ids=(0,))  # one token is under every limit
    order = Order(prompt=warmup, sampling=_GREEDY, max_tokens=1, stop=())
    client.submit(order, on_event)
    try:
        async with asyncio.timeout(limit_s):
            finished = await done
    except TimeoutError as error:
        late = Failure(code=Code.LOAD_NO_PROGRESS, message="it loaded, but its first token did not come in time")
        raise StartError(late) from error
    if finished.failure is not None:
        why = f"it loaded, but its first token failed: {finished.failure.message}"
        raise StartError(Failure(code=Code.START_FAILED, message=why))
