"""The engine's loop: frames in, a step, one frame out for the whole batch.

One thread. It never waits while work is pending and never blocks in send. A live change takes
effect between two steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from halogend.engine.execute import ENGINE_ERROR, NUMERIC_ERROR, Executor
from halogend.engine.interface import Loaded
from halogend.engine.limits import check_limits, least_blocks, pool_blocks, sched_limits
from halogend.engine.meter import StepMeter
from halogend.engine.progress import Progress
from halogend.sched.blocks import BlockPool
from halogend.sched.errors import InvariantError
from halogend.sched.request import End, Events, Refusal, Request
from halogend.sched.scheduler import Scheduler
from halogend.wire.channel import ChannelClosedError, WorkerChannel, wait
from halogend.wire.messages import (
    Abort,
    AnyMessage,
    Commit,
    Discard,
    Ended,
    EngineLimits,
    EngineSpec,
    Failure,
    Generate,
    PoolResized,
    Prepared,
    PrepareEngine,
    Sampled,
    SetThreads,
    StepOutput,
    Stop,
)

_NOTHING = Events((), ())
_STOP_PATIENCE_S = 1.0
_SENTENCES = {
    "queue_timeout": "the request waited longer than queue_timeout_ms for a place in the batch",
    "request_timeout": "the request took longer than request_timeout_ms",
    "kv_too_small": "the KV pool was made smaller than this request needs",
    NUMERIC_ERROR: "the model's output for this request is not finite",
    ENGINE_ERROR: "the engine failed on this request",
}

log = structlog.get_logger(__name__)


class PeerLostError(Exception):
    """The text process is gone: nobody takes tokens any more."""


@dataclass(frozen=True, slots=True)
class Channels:
    """`control` leads to the daemon, `data` to the text process."""

    control: WorkerChannel
    data: WorkerChannel


class EngineLoop:
    """Serves one loaded model until Stop or the end of the control channel."""

    def __init__(
        self,
        channels: Channels,
        loaded: Loaded,
        spec: EngineSpec,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channels = channels
        self._loaded = loaded
        self._context_tokens = spec.max_model_len
        self._progress = progress
        self._clock = clock
        pool = BlockPool(loaded.reserve_blocks, loaded.block_count)
        self._scheduler = Scheduler(sched_limits(spec.limits), pool, loaded.layout)
        self._executor = Executor(loaded.runner, spec.limits.max_batch)
        self._meter = StepMeter()
        self._prepared: dict[int, EngineLimits] = {}
        self._refused: list[Ended] = []
        self._ended: list[End] = []
        self._stopped = False

    def run(self, backlog: Iterable[AnyMessage] = ()) -> None:
        """Returns when it is told to stop. `backlog` came on control before. Raises PeerLostError,
        EngineBrokenError, InvariantError."""
        try:
            for message in backlog:
                self._on_control(message)
            while not self._stopped:
                self.turn()
        except ChannelClosedError as error:
            if not self._told_to_stop():
                raise PeerLostError from error

    def turn(self) -> None:
        """What has come, a step if there is anything to compute, what goes out; else waits."""
        self._receive()
        if self._stopped:
            return
        now = self._clock()
        self._end(self._scheduler.expire(now))
        events = self._step(now)
        self._publish(events)
        self._report()
        self._progress.set_busy(self._scheduler.has_requests)
        if not self._scheduler.has_requests:
            wait((self._channels.control, self._channels.data), self._meter.due_in(self._clock()))

    # --- in ---------------------------------------------------------------------------------------

    def _receive(self) -> None:
        for message in self._channels.control.receive():
            self._on_control(message)
        for message in self._channels.data.receive():
            self._on_data(message)
        self._channels.data.flush()
        self._channels.control.flush()

    def _told_to_stop(self) -> bool:
        """When a channel has ended: all processes may have been told to stop at once, and the other
        was quicker by as much as the daemon was kept waiting between two sends; without the daemon
        there is nothing to serve either."""
        deadline = time.monotonic() + _STOP_PATIENCE_S
        try:
            while not self._stopped and (left_s := deadline - time.monotonic()) > 0:
                wait((self._channels.control,), left_s)
                for message in self._channels.control.receive():
                    self._on_control(message)
        except ChannelClosedError:
            return True
        return self._stopped

    def _on_data(self, message: AnyMessage) -> None:
        match message:
            case Generate():
                self._add(message)
            case Abort():
                self._scheduler.abort(message.id)
                self._executor.forget(message.id)
            case _:
                raise InvariantError(f"a {type(message).__name__} does not belong on the data channel")
        self._meter.touch()

    def _add(self, message: Generate) -> None:
        if (
            not 0
            <= min(message.prompt_ids, default=0)
            <= max(message.prompt_ids, default=0)
            < self._loaded.runner.vocab
        ):
            self._refuse(message.id, "bad_token", f"token ids must be below {self._loaded.runner.vocab}")
            return
        try:
            request = Request(message.id, message.prompt_ids, message.max_tokens, frozenset(message.stop_ids))
        except ValueError as error:
            self._refuse(message.id, ENGINE_ERROR, str(error))
            return
        refusal = self._refusal_ahead(request) or self._scheduler.add(request, self._clock())
        if refusal is not None:
            self._refuse(message.id, refusal.code, refusal.message)
            return
        self._executor.begin(message.id, message.sampling, message.prompt_ids)

    def _refusal_ahead(self, request: Request) -> Refusal | None:
        """Of a request that would not fit any more once what is prepared is committed."""
        tokens, loaded = request.positions_at_most, self._loaded
        if all(
            least_blocks(limits, loaded, tokens) <= pool_blocks(limits, loaded) for limits in self._prepared.values()
        ):
            return None
        return Refusal("kv_too_small", "the KV pool is about to be made smaller than this request needs")

    def _refuse(self, request_id: int, code: str, message: str) -> None:
        self._refused.append(Ended(id=request_id, reason="error", failure=Failure(code=code, message=message)))

    def _on_control(self, message: AnyMessage) -> None:
        match message:
            case Stop():
                self._stopped = True
            case SetThreads():
                self._loaded.runner.set_threads(message.threads)
            case PrepareEngine():
                self._prepare(message)
            case Commit():
                self._commit(message.update)
            case Discard():
                self._prepared.pop(message.update, None)
            case _:
                raise InvariantError(f"a {type(message).__name__} does not belong on an engine's control channel")

    def _prepare(self, message: PrepareEngine) -> None:
        failure = check_limits(message.limits, self._loaded, self._context_tokens, self._scheduler.positions_promised)
        if failure is None:
            self._prepared[message.update] = message.limits
        self._channels.control.send(Prepared(update=message.update, failure=failure))

    def _commit(self, update: int) -> None:
        limits = self._prepared.pop(update, None)
        if limits is None:
            raise InvariantError(f"update {update} is committed but was not prepared")
        blocks = pool_blocks(limits, self._loaded)
        self._scheduler.update(sched_limits(limits))
        self._executor.grow_slots(limits.max_batch)
        self._resize(update, blocks)
        self._meter.touch()
        log.info("limits_changed", update=update, max_batch=limits.max_batch, pool_blocks=blocks)

    def _resize(self, update: int, blocks: int) -> None:
        """No step is in flight here: what is held behind the limit is copied before it goes."""
        runner = self._loaded.runner
        resized = self._scheduler.resize(blocks)
        self._end(resized.ended)
        runner.resize_pool(blocks, resized.moves)
        pool_bytes = blocks * self._loaded.block_bytes
        self._channels.control.send(
            PoolResized(update=update, pool_bytes=pool_bytes, touched_bytes=runner.touched_bytes)
        )

    # --- a step -------------------------------------------------------------------------------------

    def _step(self, now: float) -> Events:
        plan = self._scheduler.schedule(now)
        if plan is None:
            if self._scheduler.has_requests:
                raise InvariantError(f"nothing can be computed for {self._scheduler.stats}")
            return _NOTHING
        self._progress.set_busy(True)
        events = self._scheduler.apply(self._executor.run(plan))
        self._meter.step(plan, self._clock() - now)
        self._progress.bump()
        return events

    # --- out ----------------------------------------------------------------------------------------

    def _end(self, ended: Iterable[End]) -> None:
        self._ended.extend(ended)

    def _publish(self, events: Events) -> None:
        self._end(events.ended)
        for end in self._ended:
            self._executor.forget(end.id)
        ended = (*self._refused, *map(_ended, self._ended))
        self._refused, self._ended = [], []
        if not events.sampled and not ended:
            return
        sampled = tuple(Sampled(id=request_id, token=token) for request_id, token in events.sampled)
        self._channels.data.send(StepOutput(sampled=sampled, ended=ended))

    def _report(self) -> None:
        now = self._clock()
        if self._meter.due_in(now) == 0:
            self._channels.control.send(self._meter.snapshot(self._scheduler, self._loaded.runner.touched_bytes, now))


def _ended(end: End) -> Ended:
    if end.code is None:
        return Ended(id=end.id, reason=end.reason)
    message = _SENTENCES.get(end.code, end.code)
    return Ended(id=end.id, reason=end.reason, failure=Failure(code=end.code, message=message))
