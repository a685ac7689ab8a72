"""Requests that are being generated, and what one step of the engine means for each.

Pure bookkeeping: messages in, events out. A request is here from the moment that the engine is
told until its Finished, which is its last event and comes exactly once.

`completion_tokens` counts the tokens whose text may be shown: not the stop id that ends an answer, and
nothing after the token that completes a stop string.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from halogend.text.failures import INTERNAL
from halogend.text.incremental import TextStream
from halogend.wire.failure import Failure
from halogend.wire.requests import Delta, Ended, Finished, StepOutput, TextEvent, Usage


@dataclass(slots=True)
class _Answer:
    stream: TextStream
    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0

    def finished(self, request_id: int, reason: str, failure: Failure | None = None) -> Finished:
        usage = Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
        )
        return Finished(id=request_id, reason=reason, usage=usage, failure=failure)


@dataclass(frozen=True, slots=True)
class StepEvents:
    """`events` for the daemon, in order; `stopped` are requests that the engine must be told to
    abort, because a stop string ended them here."""

    events: tuple[TextEvent, ...]
    stopped: tuple[int, ...]


class Answers:
    """Single writer: the service's event loop."""

    def __init__(self, piece: Callable[[int], bytes], end_ids: frozenset[int]) -> None:
        self._piece = piece
        self._end_ids = end_ids
        self._open: dict[int, _Answer] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, request_id: int, prompt_tokens: int, stops: Sequence[str]) -> None:
        self._open[request_id] = _Answer(TextStream(self._piece, stops), prompt_tokens)

    def drop(self, request_id: int) -> bool:
        """Forgets a request that nobody waits for; whether it was here."""
        return self._open.pop(request_id, None) is not None

    def step(self, output: StepOutput) -> StepEvents:
        """What one step brought. Tokens and ends of requests that are gone are passed over."""
        events: list[TextEvent] = []
        stopped: list[int] = []
        for request_id, tokens in output.reused:
            if (reusing := self._open.get(request_id)) is not None:
                reusing.cached_tokens = tokens
        for sampled in output.sampled:
            answer = self._open.get(sampled.id)
            if answer is None or sampled.token in self._end_ids:
                continue
            text = answer.stream.push(sampled.token)
            answer.completion_tokens += 1
            events.append(Delta(id=sampled.id, text=text, tokens=1))
            if answer.stream.stopped:
                del self._open[sampled.id]
                stopped.append(sampled.id)
                events.append(answer.finished(sampled.id, "stop"))
        for ended in output.ended:
            if (answer := self._open.pop(ended.id, None)) is not None:
                events.extend(_end(answer, ended))
        return StepEvents(tuple(events), tuple(stopped))

    def fail_all(self, failure: Failure) -> tuple[TextEvent, ...]:
        """The engine is gone: the terminal event of every request."""
        gone, self._open = self._open, {}
        return tuple(answer.finished(request_id, "error", failure) for request_id, answer in gone.items())


def _end(answer: _Answer, ended: Ended) -> list[TextEvent]:
    events: list[TextEvent] = []
    if rest := answer.stream.finish():
        events.append(Delta(id=ended.id, text=rest, tokens=0))
    if ended.failure is not None or ended.reason == "error":
        failure = ended.failure or Failure(code=INTERNAL, message="the engine gave no reason")
        events.append(answer.finished(ended.id, "error", failure))
    else:
        events.append(answer.finished(ended.id, "stop" if answer.stream.stopped else ended.reason))
    return events
