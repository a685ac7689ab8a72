"""A router whose every answer the test writes, event by event; it speaks the real protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from halogend.control.requests import InferenceRequest, RequestError, ServedModel
from halogend.wire.failure import Failure
from halogend.wire.requests import Accepted, Delta, Finished, TextEvent, Usage

CHAT = ServedModel(
    name="chat",
    aliases=("tiny", "org/tiny"),
    generation=3,
    state="serving",
    created=1_700_000_000,
    has_chat_template=True,
    max_model_len=2048,
    max_prompt_len=1536,
    max_decode_len=512,
)


def deltas(*texts: str) -> list[TextEvent]:
    return [Delta(id=1, text=text, tokens=1) for text in texts]


def finished(reason: str = "stop", *, prompt: int = 5, completion: int = 3, cached: int = 0) -> Finished:
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)
    return Finished(id=1, reason=reason, usage=usage)


def failed(code: str, message: str = "it went wrong", param: str | None = None) -> Finished:
    failure = Failure(code=code, message=message, param=param)
    return Finished(id=1, reason="error", usage=Usage(prompt_tokens=0, completion_tokens=0), failure=failure)


class ScriptedAnswer:
    """`push` events at any time; `closed` is set when the holder lets go. `tapped` are those that its tap took."""

    def __init__(self, model: str, generation: int) -> None:
        self.model = model
        self.generation = generation
        self.closed = asyncio.Event()
        self.broken = False
        self.is_tapped = asyncio.Event()
        self.tapped: list[Delta] = []
        self._tap: Callable[[Delta], bool] | None = None
        self._events: asyncio.Queue[TextEvent] = asyncio.Queue()

    @property
    def tap(self) -> Callable[[Delta], bool] | None:
        return self._tap

    @tap.setter
    def tap(self, tap: Callable[[Delta], bool] | None) -> None:
        self._tap = tap
        self.is_tapped.set()

    def push(self, *events: TextEvent) -> None:
        for event in events:
            if isinstance(event, Delta) and self._events.empty() and self.tap is not None and self.tap(event):
                self.tapped.append(event)
            else:
                self._events.put_nowait(event)

    async def events(self) -> AsyncIterator[TextEvent]:
        while True:
            event = await self._events.get()
            if self.broken:
                raise ZeroDivisionError("the router has a bug")
            yield event
            if isinstance(event, Finished):
                return

    def close(self) -> None:
        self.closed.set()


def hello() -> list[TextEvent]:
    return [Accepted(id=1, prompt_tokens=5), *deltas("Hel", "", "lo, ", "wörld 😀"), finished()]


@dataclass
class ScriptedRouter:
    """`script` makes the events of a request; `refusal` is raised instead. With `manual` nothing is
    pushed: the test takes the answer from `answers` and writes it. `gate` holds submissions."""

    script: Callable[[InferenceRequest], list[TextEvent]] = lambda _: hello()
    refusal: RequestError | None = None
    manual: bool = False
    models: tuple[ServedModel, ...] = (CHAT,)
    is_ready: bool = True
    healthy: bool = True
    gate: asyncio.Event | None = None
    requests: list[InferenceRequest] = field(default_factory=list)
    answers: asyncio.Queue[ScriptedAnswer] = field(default_factory=asyncio.Queue)
    submitting: asyncio.Event = field(default_factory=asyncio.Event)
    durations: list[tuple[str, float]] = field(default_factory=list)
    ends: list[tuple[str, int, bool]] = field(default_factory=list)
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)

    async def submit(self, request: InferenceRequest) -> ScriptedAnswer:
        self.requests.append(request)
        self.submitting.set()
        if self.gate is not None:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.abandoned.set()
                raise
        if self.refusal is not None:
            raise self.refusal
        for model in self.models:
            if request.model == model.name or request.model in model.aliases:
                answer = ScriptedAnswer(model.name, model.generation)
                if not self.manual:
                    answer.push(*self.script(request))
                self.answers.put_nowait(answer)
                return answer
        raise RequestError("model_not_found", f"no model {request.model!r}; known: chat", param="model")

    def served(self) -> tuple[ServedModel, ...]:
        return self.models

    def record_end(self, name: str, generation: int, *, is_error: bool) -> None:
        self.ends.append((name, generation, is_error))

    def record_duration(self, name: str, seconds: float) -> None:
        self.durations.append((name, seconds))

    def ready(self, model: str | None) -> bool:
        return self.is_ready

    def health(self) -> dict[str, Any]:
        return {"healthy": self.healthy, "models": {}}
