"""One complete copy of a model: a text process, an engine process and their sockets.

A replica shares nothing with another and gives its memory back by exiting. It is started once and
stopped once; what happens between is told by `on_death`. It knows nothing of routes or of other replicas.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import structlog

from halogend.config.codes import Code
from halogend.config.placement import is_processor
from halogend.control.client import Client
from halogend.control.doing import Looks
from halogend.control.health import LATE_S, Pulse, suspects, verdict
from halogend.control.leases import Leases
from halogend.control.ledger import Holding
from halogend.control.process import Host
from halogend.control.replica_changes import ReplicaChanges
from halogend.control.replica_memory import ReplicaMemory
from halogend.control.replica_spec import ReplicaSpec
from halogend.control.startup import Ready, Startup
from halogend.control.watch_over import watch_over
from halogend.control.workers import ENGINE, Ahead, Workers
from halogend.wire.control import EngineReady, Hello, PoolResized, SetRest, SetThreads, StartFailed, TextReady
from halogend.wire.messages import WIRE_VERSION, AnyMessage
from halogend.wire.specs import EngineLimits
from halogend.wire.stats import EngineStats

_log = structlog.get_logger()
_STOP_GRACE_S, _KILLED_S = 5.0, 3.0


class State(enum.StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Company:
    """Whom a replica tells. `others_speak`: has a worker that is not this replica's said something lately?"""

    on_stats: Callable[[Replica, EngineStats], None]
    on_death: Callable[[Replica], None]
    others_speak: Callable[[Replica], bool]


class Replica:
    """`died` is set when a started replica ends without `stop`; `reason` then says how. `generation` is
    the number of the one it belongs to, `index` its place there, from 0. `deaths` of its place are in seconds
    of the monotonic clock, and so is when `stats` were `told_at`; `trouble` says why a dead one was not started
    again yet."""

    def __init__(self, spec: ReplicaSpec, generation: int, index: int, host: Host, company: Company) -> None:
        self.spec = spec
        self.generation = generation
        self.index = index
        self.state = State.STARTING
        self.died = asyncio.Event()
        self.reason = ""
        self.stats: EngineStats | None = None
        self.told_at = 0.0
        self.client = Client(f"{spec.model} generation {generation}" + (f" replica {index + 1}" if index else ""))
        self.memory = ReplicaMemory(host.root, lambda: self.pool_touched_bytes)
        self.weight = spec.weight
        self.trouble = ""
        self.deaths: tuple[float, ...] = ()
        self._rest = 0.0
        self.leases = Leases()
        self._host = host
        self._company = company
        self._workers = Workers(host, spec.cores, self._receive, self._exited)
        self.changes = ReplicaChanges(spec.text, spec.engine.limits, self._workers)
        self._startup = Startup(spec.model)
        self._looks = Looks(host.root, spec.model)
        self._watcher: asyncio.Task[None] | None = None
        self._was_stopped = False

    @property
    def name(self) -> str:
        """In the ledger: `chat#3`, or `chat#3/1` for the second of a generation."""
        return f"{self.spec.model}#{self.generation}" + (f"/{self.index}" if self.index else "")

    @property
    def engine_limits(self) -> EngineLimits:
        """As committed last."""
        return self.changes.engine_limits

    @property
    def present_spec(self) -> ReplicaSpec:
        """The spec with every live change that was committed: what starts in its place."""
        engine = msgspec.structs.replace(self.spec.engine, limits=self.changes.engine_limits)
        return replace(self.spec, text=self.changes.text, engine=engine, weight=self.weight)

    @property
    def ready(self) -> Ready:
        return self._startup.ready.result()

    @property
    def is_alive(self) -> bool:
        return self.state is State.READY and not self.client.is_closed

    @property
    def has_chat_template(self) -> bool:
        return self.ready.text.has_chat_template

    @property
    def kernels(self) -> dict[str, str]:
        """Operator to implementation; empty until it is loaded."""
        return self._startup.kernels

    @property
    def pids(self) -> dict[str, int]:
        return self._workers.pids

    @property
    def stderr_tail(self) -> str:
        return self._workers.stderr_tail

    def pulses(self) -> dict[str, Pulse]:
        return self._workers.pulses()

    @property
    def pool_touched_bytes(self) -> int:
        """What its KV pool takes of the device, as the engine has said last."""
        if self.stats is not None:
            return self.stats.pool_touched_bytes
        return self._startup.ready.result().engine.pool_touched_bytes if self._startup.ready.done() else 0

    async def measure(self) -> None:
        """Takes what the processes of one that could serve hold into `memory`."""
        if self.state is State.READY:
            held = await self.memory.look(self.pids.values())
            self.memory.take(held, is_ready=self.state is State.READY)

    def learn(self, expected: Holding) -> None:
        """From the measure taken when it was ready. What lies in an accelerator's memory is in no measure of the
        processes: its engine says what its largest steps took there."""
        learn = self.memory.learn if is_processor(self.spec.engine.device) else self.memory.learn_of_device
        learn(expected, self.ready.engine.transient_bytes)

    # --- start ------------------------------------------------------------------------------

    def adopt(self, engine: Ahead) -> None:
        """It has its engine's process already, not told what to load. Before `start`."""
        self._workers.adopt(engine)

    async def start(self) -> Ready:
        """Processes, load, pool, warm-up, and one real token through the whole path.

        Raises StartError (from `startup`); the processes are gone by then. Cancelling undoes it as well.
        """
        try:
            try:
                await self._workers.launch(
                    self.spec.text, self.spec.engine, self.client.connect, self.spec.engine_environ(self._host)
                )
            except OSError as error:
                raise self._startup.error(Code.START_FAILED, f"its processes could not be started: {error}") from error
            self._watcher = asyncio.create_task(watch_over(self.name, self._judge, self.measure))
            ready = await asyncio.shield(self._startup.ready)
            await self._startup.first_token(self.client, self.spec.warmup_prompt, self.spec.progress_timeout_s)
            self.check_alive()
        except BaseException:
            await self.stop()
            raise
        self.state = State.READY
        return ready

    def check_alive(self) -> None:
        """Raises StartError when a process has gone since it was ready."""
        self._startup.check_alive(self._workers.exited)

    def set_threads(self, threads: int) -> None:
        self._workers.tell(ENGINE, SetThreads(threads=threads))

    def set_rest(self, share: float) -> None:
        """Of the time, that its engine computes nothing; said when it is another than before, and there is somebody to
        hear it."""
        if share != self._rest and ENGINE in self.pids:
            self._rest = share
            self._workers.tell(ENGINE, SetRest(share=share))

    # --- leases -------------------------------------------------------------------------------

    async def drained(self) -> None:
        """Returns when no request holds this replica any more."""
        await self.leases.ended()

    @property
    def crowding(self) -> float:
        """How full it would be with one more request, for its weight: a request goes where this is least."""
        return (len(self.leases) + 1) / self.weight

    # --- stop ---------------------------------------------------------------------------------

    def lose(self, reason: str) -> None:
        """It could not be started again in its place: as if it had died there."""
        self.state, self.reason, self.trouble = State.DEAD, reason, reason
        self.died.set()
        self._company.on_death(self)

    def leave(self) -> None:
        """The first of its end: what happens to its processes from here on is no death."""
        if self.state is not State.DEAD:
            self.state = State.STOPPED
        if self._watcher is not None:
            self._watcher.cancel()

    async def stop(self) -> dict[str, int]:
        """Ends both processes and returns their exit statuses, but of those that are `lingering` then. Idempotent;
        cancelled, it kills them."""
        self.leave()
        try:
            before = await self.memory.look(self.pids.values())
            patience = (0.0, 0.0) if self._was_stopped else (_STOP_GRACE_S, _KILLED_S)
            statuses = await self._workers.end(*patience)
            if not self.lingering:
                await self.memory.count_returned(before)
            elif not self._was_stopped:
                _log.error("process_does_not_end", replica=self.name, pids=self.lingering)
            self._was_stopped = True
            return statuses
        finally:
            self.kill()

    @property
    def lingering(self) -> dict[str, int]:
        """By role, the processes that are not gone: of a replica that was stopped or killed, those that hold its
        bytes for as long as they are there."""
        return {role: pid for role, pid in self.pids.items() if not self._workers.exited[role].is_set()}

    async def gone(self) -> None:
        """Returns when no process of it is left."""
        for exited in self._workers.exited.values():
            await exited.wait()

    def kill(self) -> None:
        self._workers.kill()
        self.client.close()

    # --- what the workers say -------------------------------------------------------------------

    def _receive(self, role: str, message: AnyMessage) -> None:
        match message:
            case EngineStats():
                self.stats, self.told_at = message, time.monotonic()
                self._company.on_stats(self, message)
            case Hello() if message.version != WIRE_VERSION:
                why = f"the {role} process speaks version {message.version}, not {WIRE_VERSION}"
                self._startup.fail(Code.WIRE_VERSION, why)
            case PoolResized():
                self.changes.confirm(message.update)
            case TextReady() | EngineReady():
                self._startup.take(message)
            case StartFailed():
                self._startup.refuse(message.failure, self._workers.by_role[role].child.stderr_tail)
            case _:
                pass

    def _exited(self, how: str) -> None:
        self._startup.fail(Code.START_FAILED, f"{how} while starting", self.stderr_tail)
        if self.state is State.STARTING:
            self.client.close()  # whoever waits for its first token hears of it
        if self.state is State.READY:
            self.state = State.DEAD
            self.reason = self.reason or how
            self.client.close()
            self._workers.kill_children()
            self.changes.confirm_all()
            self.died.set()
            self._company.on_death(self)

    def _judge(self, now: float, late_s: float) -> None:
        """Reads /proc only of those that give cause."""
        pulses = self.pulses()
        doing = self._looks.take(suspects(pulses, now), self.pids, now)
        if self.state is State.STARTING:
            if late_s <= LATE_S:
                self._startup.judge(pulses, now, self.spec.progress_timeout_s, doing)
            return
        wrong = verdict(pulses, now, late_s, doing, others_speak=self._company.others_speak(self))
        if wrong is not None:
            role, self.reason = wrong
            self._workers.by_role[role].child.kill()
