"""The engine's loop: frames in, a step, one frame out for the whole batch.

One thread. It never waits while work is pending, unless its device is too hot, and never blocks in send. A live
change takes effect between two steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from halogend.engine.cooling import Cooling
from halogend.engine.execute import Executor
from halogend.engine.intake import Intake
from halogend.engine.interface import Loaded
from halogend.engine.limits import blocks_at_rest, pool_blocks, sched_limits
from halogend.engine.live import LiveLimits
from halogend.engine.meter import StepMeter
from halogend.engine.outbox import Outbox
from halogend.engine.progress import Progress
from halogend.engine.recording import Recording
from halogend.engine.rest import Chore, Rest
from halogend.engine.under_way import UnderWay
from halogend.sched.blocks import BlockPool
from halogend.sched.errors import InvariantError
from halogend.sched.request import Events
from halogend.sched.scheduler import Scheduler
from halogend.wire.channel import ChannelClosedError, WorkerChannel, wait
from halogend.wire.control import Commit, Discard, PoolResized, PrepareEngine, SetRest, SetThreads, Stop
from halogend.wire.messages import AnyMessage
from halogend.wire.requests import Abort, Generate
from halogend.wire.specs import EngineSpec

_NOTHING = Events((), ())
_STOP_PATIENCE_S = 1.0

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
        self._audit_steps = spec.audit_steps
        self._progress = progress
        self._clock = clock
        self._pool = BlockPool(loaded.reserve_blocks, loaded.block_count)
        self._scheduler = Scheduler(sched_limits(spec.limits), self._pool, loaded.layout)
        self._executor = Executor(loaded.runner, spec.limits.max_batch, loaded.chooser)
        self._under_way = UnderWay(self._executor, loaded.steps_ahead, clock)
        self._live = LiveLimits(spec, loaded)
        self._meter = StepMeter()
        self._rest = Rest()
        self._cooling = Cooling()
        self._recording = Recording(loaded.recordings, clock)
        self._outbox = Outbox(channels.data, self._meter, self._executor.forget, clock)
        self._intake = Intake(self._scheduler, self._executor, self._live, self._outbox, loaded.runner.vocab)
        self._stopped = False

    def run(self, backlog: Iterable[AnyMessage] = ()) -> None:
        """Returns when it is told to stop. `backlog` came on control before. Raises PeerLostError,
        EngineBrokenError, InvariantError."""
        try:
            for message in backlog:
                self._on_control(message)
            while not self._stopped:
                self.turn()
            self._scheduler.audit()
        except ChannelClosedError as error:
            if not self._told_to_stop():
                raise PeerLostError from error

    def turn(self) -> None:
        """What has come, a step if there is anything to compute, what goes out; else waits."""
        self._receive()
        if self._stopped:
            return
        now = self._clock()
        if self._cools(now):
            return
        self._outbox.end(self._scheduler.expire(now))
        self._heed_pins(now)
        events = self._step(now)
        self._outbox.publish(events)
        self._report()
        is_busy = self._scheduler.has_requests or bool(self._under_way)
        self._progress.set_busy(is_busy)
        if self._recording.is_due(self._clock(), is_busy=is_busy):
            self._record()
        elif not is_busy:
            self._be_idle()

    def _cools(self, now: float) -> bool:
        """Nothing is computed yet, so that the device cools; what comes meanwhile is heard."""
        left_s = self._cooling.left_s(now) if self._scheduler.has_requests else 0.0
        if left_s > 0:
            wait((self._channels.control, self._channels.data), left_s)
        return left_s > 0

    def _heed_pins(self, now: float) -> None:
        """Those whose time is over go when the next step is planned, and their memory may go back."""
        ends_s = self._scheduler.pins_end_s
        if ends_s is not None and ends_s <= now:
            self._meter.touch()
            self._rest.again(Chore.FLOOR)

    def _be_idle(self) -> None:
        for chore in self._rest.due(self._clock()):
            self._do(chore)
        now = self._clock()
        ends_s = self._scheduler.pins_end_s
        pins_s = None if ends_s is None else max(0.0, ends_s - now)
        timeouts = (self._meter.due_in(now), self._rest.due_in(now), pins_s)
        left_s = min((each for each in timeouts if each is not None), default=None)
        wait((self._channels.control, self._channels.data), left_s)

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
                self._intake.take(message, self._clock())
            case Abort():
                self._scheduler.abort(message.id)
                self._executor.forget(message.id)
                self._meter.forget(message.id)
            case _:
                raise InvariantError(f"a {type(message).__name__} does not belong on the data channel")
        self._meter.touch()

    def _on_control(self, message: AnyMessage) -> None:
        match message:
            case Stop():
                self._stopped = True
            case SetThreads():
                self._loaded.runner.set_threads(message.threads)
            case SetRest():
                self._cooling.set(message.share)
            case PrepareEngine():
                self._channels.control.send(self._live.prepare(message, self._scheduler.positions_promised))
            case Commit():
                self._commit(message.update)
            case Discard():
                self._live.discard(message.update)
            case _:
                raise InvariantError(f"a {type(message).__name__} does not belong on an engine's control channel")

    def _commit(self, update: int) -> None:
        limits = self._live.commit(update)
        blocks = pool_blocks(limits, self._loaded)
        self._scheduler.update(sched_limits(limits))
        self._executor.grow_slots(limits.max_batch)
        self._recording.expect(limits.max_batch)
        self._resize(blocks)
        touched_bytes = self._loaded.runner.touched_bytes
        pool_bytes = blocks * self._loaded.block_bytes
        self._channels.control.send(PoolResized(update=update, pool_bytes=pool_bytes, touched_bytes=touched_bytes))
        self._meter.touch()
        log.info("limits_changed", update=update, max_batch=limits.max_batch, pool_blocks=blocks)

    def _resize(self, blocks: int) -> None:
        """No step may be in flight: what is held behind the limit is copied before it goes."""
        self._settle()
        resized = self._scheduler.resize(blocks)
        self._outbox.end(resized.ended)
        self._loaded.runner.resize_pool(blocks, resized.moves)

    def _settle(self) -> None:
        """Until no step is in flight."""
        while self._under_way:
            self._outbox.publish(self._collect())

    def _record(self) -> None:
        self._settle()
        self._recording.record()
        self._progress.bump()

    # --- at rest ------------------------------------------------------------------------------------

    def _do(self, chore: Chore) -> None:
        if chore is Chore.AUDIT:
            self._scheduler.audit()
            return
        cached = self._pool.cached_count if chore is Chore.COMPACT else 0
        blocks = blocks_at_rest(self._live.current, self._loaded, self._pool.referenced_count + cached)
        if blocks is not None:
            self._give_back(blocks)

    def _give_back(self, blocks: int) -> None:
        """The pool's memory behind so many; its limit stays what it is."""
        before = self._loaded.runner.touched_bytes
        self._resize(blocks)
        self._resize(pool_blocks(self._live.current, self._loaded))
        self._meter.touch()
        log.info("pool_shrunk", before_bytes=before, after_bytes=self._loaded.runner.touched_bytes)

    # --- a step -------------------------------------------------------------------------------------

    def _step(self, now: float) -> Events:
        """The next one is submitted; what the oldest under way brought, if it is time to look. A device that is to rest
        has nothing ahead of it."""
        if self._cooling.is_on and self._under_way:
            return self._collect()
        plan = self._scheduler.schedule(now)
        if plan is not None:
            self._progress.set_busy(True)
            self._rest.wake()
            self._under_way.submit(plan, now)
        elif not self._under_way and self._scheduler.has_requests:
            raise InvariantError(f"nothing can be computed for {self._scheduler.stats}")
        if self._under_way.is_full or (self._under_way and (plan is None or self._cooling.is_on)):
            return self._collect()
        return _NOTHING

    def _collect(self) -> Events:
        step = self._under_way.collect()
        self._cooling.computed(step.seconds, self._clock())
        events = self._scheduler.apply(step.result)
        self._meter.step(step.plan, step.seconds)
        self._progress.bump()
        if self._audit_steps and (step.plan.number + 1) % self._audit_steps == 0:
            self._scheduler.audit()
        return events

    def _report(self) -> None:
        now = self._clock()
        if self._meter.due_in(now) == 0:
            self._channels.control.send(self._meter.snapshot(self._scheduler, self._loaded.runner.touched_bytes, now))
