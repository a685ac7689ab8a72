"""One loaded instance of a model's spec: a text process, an engine process and their sockets.

A generation shares nothing with another and gives its memory back by exiting. It is started once
and stopped once; what happens between is told by `died`.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from halogend.config.codes import Code
from halogend.control.client import Client, Order
from halogend.control.health import Pulse, verdict
from halogend.control.process import Host, reap
from halogend.control.worker import Worker
from halogend.wire.messages import (
    WIRE_VERSION,
    AnyMessage,
    Commit,
    Discard,
    EngineReady,
    EngineSpec,
    EngineStats,
    Failure,
    Finished,
    Hello,
    PrepareEngine,
    PrepareText,
    Sampling,
    SetThreads,
    StartEngine,
    StartFailed,
    StartText,
    Stop,
    TextEvent,
    TextPrompt,
    TextReady,
    TextSpec,
)

_STOP_GRACE_S = 5.0
_PREPARE_LIMIT_S = 30.0
_WATCH_EVERY_S = 1.0
_TEXT, _ENGINE = "text", "engine"
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
    """A generation did not come up; `failure` says why, `tail` is what the process last wrote."""

    def __init__(self, failure: Failure, tail: str = "") -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.tail = tail


class UpdateError(Exception):
    """A worker refused a live change; nothing was changed anywhere."""


class State(enum.StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """Frozen before the processes start. `passive_wait`: cores are shared with other engines."""

    model: str
    text: TextSpec
    engine: EngineSpec
    progress_timeout_s: float
    warmup_prompt: str
    passive_wait: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """What was learnt by loading."""

    text: TextReady
    engine: EngineReady


class Lease(Protocol):
    """A request's hold on a generation, as the generation sees it."""

    has_token: bool

    def end(self, code: str, message: str) -> None: ...


OnStats = Callable[["Generation", EngineStats], None]


class Generation:
    """`died` is set when a started generation ends without `stop`; `reason` then says how."""

    def __init__(self, spec: GenerationSpec, number: int, host: Host, on_stats: OnStats) -> None:
        self.spec = spec
        self.number = number
        self.state = State.STARTING
        self.died = asyncio.Event()
        self.reason = ""
        self.stats: EngineStats | None = None
        self.client = Client(f"{spec.model} generation {number}")
        self.engine_limits = spec.engine.limits
        self.pss_at_stop_bytes = 0
        self.leases: set[Lease] = set()
        self._idle = asyncio.Event()
        self._host = host
        self._on_stats = on_stats
        self._workers: dict[str, Worker] = {}
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._half: dict[str, TextReady | EngineReady] = {}
        self._next_update = 1
        self._watcher: asyncio.Task[None] | None = None
        self._exits: list[asyncio.Task[None]] = []

    @property
    def model(self) -> str:
        return self.spec.model

    @property
    def ready(self) -> Ready:
        return self._ready.result()

    @property
    def has_chat_template(self) -> bool:
        return self.ready.text.has_chat_template

    @property
    def kernels(self) -> dict[str, str]:
        """Operator to implementation; empty until it is loaded."""
        engine = self._half.get(_ENGINE)
        return engine.kernels if isinstance(engine, EngineReady) else {}

    @property
    def pids(self) -> dict[str, int]:
        return {role: worker.child.pid for role, worker in self._workers.items()}

    @property
    def stderr_tail(self) -> str:
        return "\n".join(worker.child.stderr_tail for worker in self._workers.values() if worker.child.stderr_tail)

    def pulses(self) -> dict[str, Pulse]:
        return {role: worker.pulse for role, worker in self._workers.items()}

    def pss_bytes(self) -> int:
        return sum(worker.child.pss_bytes() for worker in self._workers.values())

    # --- start ------------------------------------------------------------------------------

    async def start(self) -> Ready:
        """Processes, load, pool, warm-up, and one real token through the whole path.

        Raises StartError; the processes are gone by then. Cancelling undoes it as well.
        """
        try:
            await self._launch()
            self._watcher = asyncio.create_task(self._watch())
            ready = await asyncio.shield(self._ready)
            await self._first_token()
        except BaseException:
            await self.stop()
            raise
        self.state = State.READY
        return ready

    async def _launch(self) -> None:
        text_data, daemon_data = socket.socketpair()
        text_engine, engine_data = socket.socketpair()
        await self.client.connect(daemon_data)
        text = await self._spawn(_TEXT, {"data": text_data, "engine": text_engine}, threads=1)
        text.tell(StartText(spec=self.spec.text))
        engine = await self._spawn(_ENGINE, {"data": engine_data}, threads=self.spec.engine.threads)
        engine.tell(StartEngine(spec=self.spec.engine))

    async def _spawn(self, role: str, sockets: dict[str, socket.socket], threads: int) -> Worker:
        environ = self._host.child_environ(threads, self.spec.passive_wait)
        try:
            worker = await Worker.start(self._host, role, sockets, environ, self._receive)
        except OSError as error:
            raise self._start_error(Code.START_FAILED, f"no {role} process could be started: {error}") from error
        self._workers[role] = worker
        self._exits.append(asyncio.create_task(self._await_exit(worker)))
        return worker

    async def _first_token(self) -> None:
        done: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()

        def on_event(event: TextEvent) -> None:
            if isinstance(event, Finished) and not done.done():
                done.set_result(event)

        prompt = TextPrompt(text=self.spec.warmup_prompt or "Hello")
        self.client.submit(Order(prompt=prompt, sampling=_GREEDY, max_tokens=1, stop=()), on_event)
        try:
            async with asyncio.timeout(self.spec.progress_timeout_s):
                finished = await done
        except TimeoutError as error:
            raise self._start_error(
                Code.LOAD_NO_PROGRESS, "it loaded, but its first token did not come in time"
            ) from error
        if finished.failure is not None:
            raise self._start_error(
                Code.START_FAILED, f"it loaded, but its first token failed: {finished.failure.message}"
            )

    # --- live changes -------------------------------------------------------------------------

    async def prepare(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        """All workers check and hold the change. Raises UpdateError; then nothing is held."""
        wanted = [(role, message) for role, message in ((_TEXT, text), (_ENGINE, engine)) if message is not None]
        try:
            async with asyncio.timeout(_PREPARE_LIMIT_S):
                answers = await asyncio.gather(*(self._workers[role].ask(message) for role, message in wanted))
        except (TimeoutError, ConnectionError) as error:
            self.discard(text, engine)
            raise UpdateError("a worker did not answer the live change in time") from error
        refused = next((answer.failure for answer in answers if answer.failure is not None), None)
        if refused is not None:
            self.discard(text, engine)
            raise UpdateError(refused.message)

    def commit(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        """Takes effect between two steps. A worker that died meanwhile is the supervisor's case."""
        self._tell(_TEXT, text and Commit(update=text.update))
        self._tell(_ENGINE, engine and Commit(update=engine.update))
        if engine is not None:
            self.engine_limits = engine.limits

    def discard(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        self._tell(_TEXT, text and Discard(update=text.update))
        self._tell(_ENGINE, engine and Discard(update=engine.update))

    def next_update(self) -> int:
        self._next_update += 1
        return self._next_update

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
        """Returns when no request holds this generation any more."""
        while self.leases:
            self._idle.clear()
            await self._idle.wait()

    # --- stop ---------------------------------------------------------------------------------

    async def stop(self) -> dict[str, int]:
        """Ends both processes and returns their exit statuses. Idempotent."""
        if self.state is not State.DEAD:
            self.state = State.STOPPED
        if self._watcher is not None:
            self._watcher.cancel()
        self.pss_at_stop_bytes = self.pss_at_stop_bytes or self.pss_bytes()
        for role in self._workers:
            self._tell(role, Stop())
        statuses = {role: await reap(worker.child, _STOP_GRACE_S) for role, worker in self._workers.items()}
        for worker in self._workers.values():
            worker.close()
        self.client.close()
        return statuses

    # --- what the workers say -------------------------------------------------------------------

    def _receive(self, role: str, message: AnyMessage) -> None:
        match message:
            case EngineStats():
                self.stats = message
                self._on_stats(self, message)
            case Hello() if message.version != WIRE_VERSION:
                self._fail(
                    Code.START_FAILED, f"the {role} process speaks wire version {message.version}, not {WIRE_VERSION}"
                )
            case TextReady() | EngineReady():
                self._half[role] = message
                text, engine = self._half.get(_TEXT), self._half.get(_ENGINE)
                if isinstance(text, TextReady) and isinstance(engine, EngineReady) and not self._ready.done():
                    self._ready.set_result(Ready(text=text, engine=engine))
            case StartFailed():
                self._fail_with(StartError(message.failure, self._workers[role].child.stderr_tail))
            case _:
                pass

    def _fail(self, code: str, message: str) -> None:
        self._fail_with(self._start_error(code, message))

    def _fail_with(self, error: StartError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # seen here: a start that was cancelled never awaits it

    def _start_error(self, code: str, message: str) -> StartError:
        return StartError(Failure(code=code, message=f"{self.model}: {message}"), self.stderr_tail)

    async def _await_exit(self, worker: Worker) -> None:
        await worker.child.exited.wait()
        how = f"the {worker.role} process ended with status {worker.child.status}"
        self._fail(Code.START_FAILED, f"{how} while starting")
        if self.state is State.READY:
            self.state = State.DEAD
            self.reason = self.reason or how
            self.client.close()
            for each in self._workers.values():
                each.child.kill()
            self.died.set()

    async def _watch(self) -> None:
        due = time.monotonic()
        while True:
            due += _WATCH_EVERY_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            late_s, due = now - due, now
            if self.state is State.STARTING:
                self._judge_start(now)
            elif (wrong := verdict(self.pulses(), now, late_s)) is not None:
                role, self.reason = wrong
                self._workers[role].child.kill()

    def _judge_start(self, now: float) -> None:
        limit_s = self.spec.progress_timeout_s
        for role, worker in self._workers.items():
            if role not in self._half and worker.pulse.still_s(now) > limit_s:
                self._fail(Code.LOAD_NO_PROGRESS, f"loading made no progress for {limit_s:g} s (the {role} process)")
