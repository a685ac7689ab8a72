"""What a text process and the daemon see of an engine: frames at the other ends of its sockets."""

from __future__ import annotations

import time
from collections.abc import Sequence

from support.sampling_reference import make_sampling

from halogend.wire.channel import WorkerChannel, wait
from halogend.wire.control import Progress
from halogend.wire.messages import AnyMessage
from halogend.wire.policy import EnginePolicy
from halogend.wire.requests import Ended, Generate, StepOutput
from halogend.wire.specs import EngineLimits

PATIENCE_S = 60.0  # without anything that moves: a load may take long on a busy machine


def make_engine_limits(**changes: float | EnginePolicy) -> EngineLimits:
    values: dict[str, float | EnginePolicy] = {
        "max_model_len": 128,
        "max_batch": 8,
        "max_queue": 64,
        "queue_timeout_s": 0.0,
        "request_timeout_s": 0.0,
        "prefill_chunk_tokens": 0,
        "pool_bytes": 64 * 64,
    }
    return EngineLimits(**(values | changes))  # type: ignore[arg-type]  # numbers of either kind


def make_generate(id_: int, prompt: Sequence[int], max_tokens: int, **sampling: float) -> Generate:
    return Generate(
        id=id_,
        prompt_ids=tuple(prompt),
        max_tokens=max_tokens,
        sampling=make_sampling(**({"temperature": 0} | sampling)),
        stop_ids=(),
    )


class EngineClient:
    """Collects what comes back. `tokens` and `ended` by request id; `frames` are all StepOutputs."""

    def __init__(self, control: WorkerChannel, data: WorkerChannel) -> None:
        self.control = control
        self.data = data
        self.tokens: dict[int, list[int]] = {}
        self.ended: dict[int, Ended] = {}
        self.frames: list[StepOutput] = []
        self.told: list[AnyMessage] = []
        self._counter = -1
        self._moved_s = time.monotonic()

    def receive(self, timeout_s: float | None = PATIENCE_S) -> None:
        """Waits for something and takes in all that is there. Raises ChannelClosedError at the end
        of a channel, TimeoutError when nothing comes."""
        readable = wait((self.control, self.data), timeout_s)
        if not readable and timeout_s:
            raise TimeoutError("the engine says nothing")
        if self.control in readable:
            messages = self.control.receive()
            self.told += messages
            self._watch(messages)
        if self.data in readable:
            for frame in self.data.receive():
                assert isinstance(frame, StepOutput)
                self._take(frame)

    def _watch(self, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            if isinstance(message, Progress) and message.counter > self._counter:
                self._counter, self._moved_s = message.counter, time.monotonic()

    def _take(self, frame: StepOutput) -> None:
        self._moved_s = time.monotonic()
        self.frames.append(frame)
        for pair in frame.sampled:
            assert pair.id not in self.ended, "a token after the end"
            self.tokens.setdefault(pair.id, []).append(pair.token)
        for end in frame.ended:
            assert end.id not in self.ended, "two ends"
            self.ended[end.id] = end

    def until_ended(self, *ids: int) -> None:
        self._moved_s = time.monotonic()
        while not set(ids) <= self.ended.keys():
            assert self._moves(), f"still waiting for {set(ids) - self.ended.keys()}"
            self.receive()

    def until_told(self, kind: type[AnyMessage]) -> AnyMessage:
        """The next message of that kind on control, taken out of `told`."""
        self._moved_s = time.monotonic()
        while True:
            for message in self.told:
                if isinstance(message, kind):
                    self.told.remove(message)
                    return message
            assert self._moves(), f"no {kind.__name__}, but {self.told}"
            self.receive()

    def _moves(self) -> bool:
        return time.monotonic() < self._moved_s + PATIENCE_S
