"""One complete copy of a model: a text process, an engine process and their sockets.

A replica shares nothing with another and gives its memory back by exiting. It is started once and
stopped once; what happens between is told by `on_death`. It knows nothing of routes or of other replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import structlog

from halogend.config.codes import Code
from halogend.control.client import Client
from halogend.control.doing import Looks
from halogend.control.health import LATE_S, Pulse, suspects, verdict
from halogend.control.held import held_bytes, left_bytes
from halogend.control.ledger import Holding
from halogend.control.process import Host, ending, reap
from halogend.control.startup import Ready, Startup
from halogend.control.worker import Worker
from halogend.wire.messages import (
    WIRE_VERSION,
    AnyMessage,
    Commit,
    Discard,
    EngineLimits,
    EngineReady,
    EngineSpec,
    EngineStats,
    Hello,
    PoolResized,
    PrepareEngine,
    PrepareText,
    SetThreads,
    StartEngine,
    StartFailed,
    StartText,
    Stop,
    TextReady,
    TextSpec,
)
from halogend.wire.process import EXIT_PEER_LOST

_log = structlog.get_logger()
_STOP_GRACE_S, _KILLED_S = 5.0, 3.0
_PREPARE_LIMIT_S = 30.0
_WATCH_EVERY_S = 1.0
_MEASURE_EVERY = 10
_TEXT, _ENGINE = "text", "engine"
_FOLLOWS = (0, EXIT_PEER_LOST)  # how a process ends because the other one did
_PEER_GRACE_S = 0.5
_FOLLOW_S, _LOOK_AGAIN_S = 1.0, 0.02


class UpdateError(Exception):
    """A worker refused a live change; nothing was changed anywhere."""


class State(enum.StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """Frozen before the processes start. `cores` are those they run on; none: all. `weight` is its part of the
    requests beside other replicas, `fingerprint` that of the checkpoint that is meant."""

    model: str
    text: TextSpec
    engine: EngineSpec
    progress_timeout_s: float
    warmup_prompt: str
    cores: tuple[int, ...] = ()
    fingerprint: str = ""
    device: str = ""
    weight: float = 1.0


class Lease(Protocol):
    """A request's hold on a replica, as the replica sees it."""

    has_token: bool

    def end(self, code: str, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Company:
    """Whom a replica tells. `others_speak`: has a worker that is not this replica's said something lately?"""

    on_stats: Callable[[Replica, EngineStats], None]
    on_death: Callable[[Replica], None]
    others_speak: Callable[[Replica], bool]


class Replica:
    """`died` is set when a started replica ends without `stop`; `reason` then says how. `generation` is
    the number of the one it belongs to, `index` its place there, from 0. `deaths` of its place are in seconds
    of the monotonic clock; `trouble` says why a dead one was not started again yet. `surplus_bytes` is how much
    more working memory it took than was estimated, `returned_bytes` what came back as it was stopped."""

    def __init__(self, spec: ReplicaSpec, generation: int, index: int, host: Host, company: Company) -> None:
        self.spec = spec
        self.generation = generation
        self.index = index
        self.state = State.STARTING
        self.died = asyncio.Event()
        self.reason = ""
        self.stats: EngineStats | None = None
        self.client = Client(f"{spec.model} generation {generation}" + (f" replica {index + 1}" if index else ""))
        self.measured_bytes = self.returned_bytes = 0
        self.base_bytes = self.surplus_bytes = 0
        self._expected: Holding | None = None
        self.weight = spec.weight
        self.trouble = ""
        self.deaths: tuple[float, ...] = ()
        self.leases: set[Lease] = set()
        self._idle = asyncio.Event()
        self._text, self._engine_limits = spec.text, spec.engine.limits
        self._host = host
        self._company = company
        self._workers: dict[str, Worker] = {}
        self._unconfirmed: dict[int, Callable[[Replica], None]] = {}
        self._startup = Startup(spec.model)
        self._looks = Looks(host.root, spec.model)
        self._watcher: asyncio.Task[None] | None = None
        self._exits: list[asyncio.Task[None]] = []
        self._was_stopped = False

    @property
    def name(self) -> str:
        """In the ledger: `chat#3`, or `chat#3/1` for the second of a generation."""
        return f"{self.spec.model}#{self.generation}" + (f"/{self.index}" if self.index else "")

    @property
    def engine_limits(self) -> EngineLimits:
        """As committed last."""
        return self._engine_limits

    @property
    def present_spec(self) -> ReplicaSpec:
        """The spec with every live change that was committed: what starts in its place."""
        engine = msgspec.structs.replace(self.spec.engine, limits=self._engine_limits)
        return replace(self.spec, text=self._text, engine=engine, weight=self.weight)

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
        return {role: worker.child.pid for role, worker in self._workers.items()}

    @property
    def stderr_tail(self) -> str:
        return "\n".join(worker.child.stderr_tail for worker in self._workers.values() if worker.child.stderr_tail)

    def pulses(self) -> dict[str, Pulse]:
        return {role: worker.pulse for role, worker in self._workers.items()}

    async def measure(self) -> None:
        """Takes what the processes hold into `measured_bytes`; of those that are gone the last is kept."""
        found = sum((await self._held()).values())
        self.measured_bytes = found or self.measured_bytes
        if self._expected is not None and self.state is State.READY:
            self.base_bytes = self.measured_bytes - self.pool_touched_bytes
            self.surplus_bytes = max(self.surplus_bytes, self._surplus(self._expected, 0))

    async def _held(self) -> dict[int, int]:
        return await asyncio.to_thread(held_bytes, list(self.pids.values()), self._host.root)

    @property
    def pool_touched_bytes(self) -> int:
        """What its KV pool takes of the device, as the engine has said last."""
        if self.stats is not None:
            return self.stats.pool_touched_bytes
        return self._startup.ready.result().engine.pool_touched_bytes if self._startup.ready.done() else 0

    def learn(self, expected: Holding) -> None:
        """From the measure taken when it was ready: what it holds but for its pool, and how much more working
        memory than `expected` that and the largest steps are. Every later measure may raise it."""
        if not self.measured_bytes:  # the system does not say
            return
        self.base_bytes = self.measured_bytes - self.pool_touched_bytes
        if (transient := self.ready.engine.transient_bytes) is not None:
            self._expected = expected
            self.surplus_bytes = self._surplus(expected, transient)

    def _surplus(self, expected: Holding, transient_bytes: int) -> int:
        working = max(0, self.base_bytes - expected.weights_bytes) + transient_bytes
        return working - expected.working_bytes

    @property
    def working_bytes(self) -> int:
        """The most that it was measured to take beside weights and pool; 0 where that is not known."""
        return 0 if self._expected is None else max(0, self._expected.working_bytes + self.surplus_bytes)

    @property
    def expected_bytes(self) -> int:
        """What it should hold now, at rest; 0 before it was ready."""
        return self.base_bytes + self.pool_touched_bytes if self.base_bytes else 0

    # --- start ------------------------------------------------------------------------------

    async def start(self) -> Ready:
        """Processes, load, pool, warm-up, and one real token through the whole path.

        Raises StartError (from `startup`); the processes are gone by then. Cancelling undoes it as well.
        """
        try:
            try:
                await self._launch()
            except OSError as error:
                raise self._startup.error(Code.START_FAILED, f"its processes could not be started: {error}") from error
            self._watcher = asyncio.create_task(self._watch())
            ready = await asyncio.shield(self._startup.ready)
            await self._startup.first_token(self.client, self.spec.warmup_prompt, self.spec.progress_timeout_s)
            self.check_alive()
        except BaseException:
            await self.stop()
            raise
        self.state = State.READY
        return ready

    async def _launch(self) -> None:
        text_data, daemon_data = socket.socketpair()
        text_engine, engine_data = socket.socketpair()
        with text_data, text_engine, engine_data:  # the children's; our copies are closed in any case
            await self.client.connect(daemon_data)
            text = await self._spawn(_TEXT, {"data": text_data, "engine": text_engine}, threads=1)
            text.tell(StartText(spec=self.spec.text))
            engine = await self._spawn(_ENGINE, {"data": engine_data}, threads=self.spec.engine.threads)
            engine.tell(StartEngine(spec=self.spec.engine))

    def check_alive(self) -> None:
        """Raises StartError when a process has gone since it was ready."""
        self._startup.check_alive({role: worker.child.exited for role, worker in self._workers.items()})

    async def _spawn(self, role: str, sockets: dict[str, socket.socket], threads: int) -> Worker:
        environ = self._host.child_environ(threads)
        worker = await Worker.start(self._host, role, sockets, environ, self._receive, self.spec.cores)
        self._workers[role] = worker
        self._exits.append(asyncio.create_task(self._await_exit(worker)))
        return worker

    # --- live changes -------------------------------------------------------------------------

    async def prepare(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        """Both workers check and hold the change. Raises UpdateError; `discard` it then."""
        wanted = [(role, message) for role, message in ((_TEXT, text), (_ENGINE, engine)) if message is not None]
        try:
            async with asyncio.timeout(_PREPARE_LIMIT_S):
                answers = await asyncio.gather(*(self._workers[role].ask(message) for role, message in wanted))
        except (TimeoutError, ConnectionError) as error:
            raise UpdateError("a worker did not answer the live change in time") from error
        refused = next((answer.failure for answer in answers if answer.failure is not None), None)
        if refused is not None:
            raise UpdateError(refused.message)

    def commit(
        self,
        text: PrepareText | None,
        engine: PrepareEngine | None,
        confirmed: Callable[[Replica], None] = lambda replica: None,
    ) -> None:
        """Takes effect between two steps; `confirmed` is called when the engine has said so, or has died. A
        worker that died meanwhile is the supervisor's case."""
        if engine is not None and self.state is State.READY:
            self._unconfirmed[engine.update] = confirmed
        self._tell(_TEXT, text and Commit(update=text.update))
        self._tell(_ENGINE, engine and Commit(update=engine.update))
        if text is not None:
            self._text = msgspec.structs.replace(self._text, limits=text.limits, chat_template=text.chat_template)
        if engine is not None:
            self._engine_limits = engine.limits

    def discard(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        self._tell(_TEXT, text and Discard(update=text.update))
        self._tell(_ENGINE, engine and Discard(update=engine.update))

    def set_threads(self, threads: int) -> None:
        self._tell(_ENGINE, SetThreads(threads=threads))

    def _tell(self, role: str, message: AnyMessage | None) -> None:
        worker = self._workers.get(role)
        if worker is not None:
            worker.tell(message)

    # --- leases -------------------------------------------------------------------------------

    def release(self, lease: Lease) -> None:
        self.leases.discard(lease)
        if not self.leases:
            self._idle.set()

    async def drained(self) -> None:
        """Returns when no request holds this replica any more."""
        while self.leases:
            self._idle.clear()
            await self._idle.wait()

    # --- stop ---------------------------------------------------------------------------------

    def lose(self, reason: str) -> None:
        """It could not be started again in its place: as if it had died there."""
        self.state, self.reason, self.trouble = State.DEAD, reason, reason
        self.died.set()
        self._company.on_death(self)

    @property
    def crowding(self) -> float:
        """How full it would be with one more request, for its weight: a request goes where this is least."""
        return (len(self.leases) + 1) / self.weight

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
            before = await self._held()
            for role in self._workers:
                self._tell(role, Stop())
            children = {role: worker.child for role, worker in self._workers.items()}
            patience = (0.0, 0.0) if self._was_stopped else (_STOP_GRACE_S, _KILLED_S)
            ended = await asyncio.gather(*(reap(each, *patience) for each in children.values()))
            if not self.lingering:
                await self._count_returned(before)
            elif not self._was_stopped:
                _log.error("process_does_not_end", replica=self.name, pids=self.lingering)
            self._was_stopped = True
            return {role: status for role, status in zip(children, ended, strict=True) if status is not None}
        finally:
            self.kill()

    @property
    def lingering(self) -> dict[str, int]:
        """By role, the processes that are not gone: of a replica that was stopped or killed, those that hold its
        bytes for as long as they are there."""
        return {role: each.child.pid for role, each in self._workers.items() if not each.child.exited.is_set()}

    async def gone(self) -> None:
        """Returns when no process of it is left."""
        for worker in self._workers.values():
            await worker.child.exited.wait()

    async def _count_returned(self, before: Mapping[int, int]) -> None:
        """What the processes held and nobody holds any more. A process that one of them had started follows
        it within moments."""
        held = sum(before.values())
        deadline = time.monotonic() + _FOLLOW_S
        # Nobody tells of the end of another one's child.
        while (left := left_bytes(before, self._host.root)) and time.monotonic() < deadline:  # noqa: ASYNC110 - as said
            await asyncio.sleep(_LOOK_AGAIN_S)
        if held:  # else it was dead before, and is not asked twice
            self.measured_bytes, self.returned_bytes = held, held - left

    def kill(self) -> None:
        for worker in self._workers.values():
            worker.child.kill()
            worker.close()
        self.client.close()

    # --- what the workers say -------------------------------------------------------------------

    def _receive(self, role: str, message: AnyMessage) -> None:
        match message:
            case EngineStats():
                self.stats = message
                self._company.on_stats(self, message)
            case Hello() if message.version != WIRE_VERSION:
                why = f"the {role} process speaks version {message.version}, not {WIRE_VERSION}"
                self._startup.fail(Code.WIRE_VERSION, why)
            case PoolResized():
                self._confirm(message.update)
            case TextReady() | EngineReady():
                self._startup.take(message)
            case StartFailed():
                self._startup.refuse(message.failure, self._workers[role].child.stderr_tail)
            case _:
                pass

    def _confirm(self, update: int) -> None:
        confirmed = self._unconfirmed.pop(update, None)
        if confirmed is not None:
            confirmed(self)

    async def _await_exit(self, worker: Worker) -> None:
        await worker.child.exited.wait()
        if worker.child.status in _FOLLOWS:
            await self._until_peer_exited(worker)
        how = f"the {worker.role} process {ending(worker.child.status)}"
        self._startup.fail(Code.START_FAILED, f"{how} while starting", self.stderr_tail)
        if self.state is State.STARTING:
            self.client.close()  # whoever waits for its first token hears of it
        if self.state is State.READY:
            self.state = State.DEAD
            self.reason = self.reason or how
            self.client.close()
            for each in self._workers.values():
                each.child.kill()
            for update in list(self._unconfirmed):
                self._confirm(update)
            self.died.set()
            self._company.on_death(self)

    async def _until_peer_exited(self, worker: Worker) -> None:
        """Whoever went first is the reason, and is told first; both exits may be seen in any order."""
        peers = [each for each in self._workers.values() if each is not worker]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PEER_GRACE_S):
                for peer in peers:
                    await peer.child.exited.wait()

    async def _watch(self) -> None:
        due = time.monotonic()
        for tick in itertools.count(1):
            due += _WATCH_EVERY_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            late_s, due = now - due, now
            try:
                self._judge(now, late_s)
                if tick % _MEASURE_EVERY == 0 and self.state is State.READY:
                    await self.measure()
            except Exception:  # noqa: BLE001  whatever is wrong with one look, the next may find a wedged worker
                _log.exception("watch_failed", replica=self.name)

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
            self._workers[role].child.kill()
