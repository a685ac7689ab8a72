"""A spare engine process: started ahead of the load that will want it, for importing torch takes longer than many
a load.

    nothing --> imports --Hello--> ready
       ^           |                 |----(a load begins: `give_to`)--> the engine of that replica, like any other
       '-----------+-----------------'  it is ended: its memory is wanted, it died or is silent, it is switched off,
                                        or engines find another environment now

It is an engine as `Workers` starts one, whom nobody has told yet what to load: the same program with the same sockets.
The daemon keeps the other end of its data socket for the text process that will come. The first one is started when
the first document was read, and imports while that is looked at; each further one when a change is closed.

What cannot be changed of a process that runs decides whether it fits: its environment. Cores can (every thread is
moved, and passes them on to those that it starts), and so can numbers of threads: a load tells torch its own before it
computes anything, so what OMP_NUM_THREADS was is of no account.

Its bytes are in the ledger as one that stands by: no plan, load or pool is ever refused for it, and it ends as soon as
they are somebody's. Must never know why anything is loaded, nor what.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from halogend.config.placement import FIRST_DEVICE
from halogend.control.health import PATIENCE_S, SILENCE_S, SPEAKING_S
from halogend.control.ledger import Holding, Ledger
from halogend.control.plan import mib
from halogend.control.process import THREAD_COUNTS, Host, Surroundings, ending, hold_to
from halogend.control.replica import Replica
from halogend.control.replica_spec import ReplicaSpec
from halogend.control.waits import first_of
from halogend.control.worker import Worker
from halogend.control.workers import ENGINE, Ahead
from halogend.control.working import ENGINE_BYTES
from halogend.obs.metrics import Metrics
from halogend.wire.control import Hello, StartFailed
from halogend.wire.messages import WIRE_VERSION, AnyMessage

_log = structlog.get_logger()
NAME = "spare worker"
"""In the ledger."""
SPARE = Holding(FIRST_DEVICE, 0, ENGINE_BYTES, 0)
"""Where the document does not divide the host."""
_LOOK_S = 1.0
_AGAIN_S = 60.0  # after one that ended by itself


class Spare:
    """At most one. Single writer: its own task, which is `keep`; a load takes it with `give_to`. `niceness` is that of
    an engine that would be started now, `clock` the monotonic one."""

    def __init__(
        self,
        host: Host,
        ledger: Ledger,
        metrics: Metrics,
        niceness: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._ledger = ledger
        self._metrics = metrics
        self._niceness = niceness
        self._clock = clock
        self._is_wanted = False
        self._holding = SPARE
        self._budget_bytes = 0
        self._sought: Mapping[str, str] | None = None  # what the next engine will find, as far as anybody knows
        self._expected = asyncio.Event()
        self._ahead: Ahead | None = None
        self._started_in = Surroundings({})
        self._version: int | None = None  # that it said Hello with
        self._refusal = ""
        self._failure = self._why = ""
        self._not_before = float("-inf")

    # --- what it is told ------------------------------------------------------------------------

    def allow(self, *, is_wanted: bool, device: str, budget_bytes: int) -> None:
        """By the document: whether there is to be one, the device of the host on which its bytes are counted, and what
        generations may take there."""
        self._is_wanted, self._budget_bytes = is_wanted, budget_bytes
        if device != self._device:
            before, self._holding = self._device, replace(SPARE, device=device)
            if self._ahead is not None:
                self._ledger.stand_by(NAME, self._holding)
            self._show(before, device)

    def expect(self, environ: Mapping[str, str]) -> None:
        """A load is to come, and this is what its engine will find: there is no reason to wait for the next look."""
        self._sought = environ
        self._expected.set()

    def give_to(self, replicas: Iterable[Replica]) -> str | None:
        """To the first that it fits, before that one is started: its name. None where it goes to nobody, and all start
        processes of their own."""
        taker = None
        for replica in replicas:
            self._sought = replica.spec.engine_environ(self._host)
            if taker is None and self._fits(replica.spec):
                taker = replica
        ahead = self._ahead
        if taker is None or ahead is None:
            return None
        if not _moved(ahead, taker.spec):
            self._refusal = f"it could not be moved to the cores {list(taker.spec.cores)}"
            return None
        self._ahead = None
        self._ledger.leave(NAME)
        self._tell("a load took it")
        self._metrics.spare_worker_taken()
        taker.adopt(ahead)
        return taker.name

    async def keep(self, is_quiet: Callable[[], bool]) -> None:
        """Until it is cancelled: one process stands by whenever no change is on its way and there is room."""
        try:
            while True:
                try:
                    await self.look(is_quiet=is_quiet())
                except Exception as error:  # noqa: BLE001  without a spare every load is as ever: nobody else may notice
                    _log.exception("spare_worker_failed")
                    self._fails(f"it could not be started: {error}")
                await first_of(self._expected.wait(), self._ledger.changed.wait(), asyncio.sleep(_LOOK_S))
                self._expected.clear()
        finally:
            await self._end("the daemon stops")

    def view(self) -> dict[str, Any]:
        """JSON-ready: `none` and why, `importing` or `ready`."""
        ahead = self._ahead
        if ahead is None or ahead.worker.child.exited.is_set():
            return {"state": "none", "reason": self._why, "pid": None, "counted_bytes": 0}
        state = "importing" if self._version is None else "ready"
        return {"state": state, "reason": None, "pid": ahead.worker.child.pid, "counted_bytes": SPARE.total_bytes}

    @property
    def _device(self) -> str:
        return self._holding.device

    # --- one look ---------------------------------------------------------------------------------

    async def look(self, *, is_quiet: bool) -> None:
        """Ends it where that is due, or starts one where it may. Raises OSError."""
        ahead = self._ahead
        if ahead is None:
            why = self._why = self._hindrance() or self._why_not_yet(is_quiet=is_quiet)
            if not why and self._sought is not None:
                await self._start(Surroundings(self._sought, niceness=self._niceness()))
        elif trouble := self._trouble(ahead):
            self._fails(trouble)
            await self._end(trouble)
        elif why := self._hindrance() or (self._misfit() if is_quiet else ""):
            await self._end(why)

    def _trouble(self, ahead: Ahead) -> str:
        """What is its own fault. One that imports at its leisure may be kept from the processor for long while it holds
        its interpreter, and says nothing then."""
        child, silent_s = ahead.worker.child, ahead.worker.pulse.silent_s(self._clock())
        if self._refusal:
            return f"the last one could not be started: {self._refusal}"
        if child.exited.is_set():
            return f"the last one {ending(child.status)}"
        if self._version not in (None, WIRE_VERSION):
            return f"the last one spoke version {self._version}, not {WIRE_VERSION}"
        limit_s = PATIENCE_S if self._version is None else SILENCE_S
        return f"the last one said nothing for {silent_s:.0f} s" if silent_s > limit_s else ""

    def _hindrance(self) -> str:
        if not self._is_wanted:
            return "reload.spare_worker is off"
        if self._budget_bytes - self._ledger.taken_bytes(self._device) < SPARE.total_bytes:
            return f"its {mib(SPARE.total_bytes)} are not left of what generations may take on {self._device}"
        return ""

    def _misfit(self) -> str:
        if self._sought is None or _comparable(self._sought) == _comparable(self._started_in.environ):
            return ""
        return "what was loaded last finds another environment"

    def _why_not_yet(self, *, is_quiet: bool) -> str:
        if self._sought is None:
            return "nothing was loaded yet"
        if not is_quiet:
            return "a change is on its way"
        left_s = self._not_before - self._clock()
        return f"{self._failure}; tried again in {left_s:.0f} s" if left_s > 0 else ""

    def _fails(self, why: str) -> None:
        """The next one is tried later."""
        self._failure, self._not_before = why, self._clock() + _AGAIN_S

    # --- the process --------------------------------------------------------------------------------

    async def _start(self, surroundings: Surroundings) -> None:
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as unless_kept:
            unless_kept.enter_context(ours)
            self._version, self._refusal = None, ""
            worker = await Worker.start(self._host, ENGINE, {"data": theirs}, surroundings, self._hear)
            unless_kept.pop_all()
        self._ahead, self._started_in = Ahead(worker, ours), surroundings
        self._ledger.stand_by(NAME, self._holding)
        self._tell("")
        _log.info("spare_worker_started", pid=worker.child.pid)

    async def _end(self, why: str) -> None:
        """Its bytes are back when it is gone."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        ahead.end()
        await ahead.worker.child.exited.wait()
        self._ledger.leave(NAME)
        self._tell(why)
        _log.info("spare_worker_ended", pid=ahead.worker.child.pid, reason=why)

    def _fits(self, spec: ReplicaSpec) -> bool:
        """Is it there and meant to be, has it the environment that a new process would have, and would a load with it
        begin as soon?"""
        ahead = self._ahead
        if ahead is None or not self._is_wanted or self._refusal or ahead.worker.child.has_ended:
            return False
        if _comparable(spec.engine_environ(self._host)) != _comparable(self._started_in.environ):
            return False
        silent_s = ahead.worker.pulse.silent_s(self._clock())
        if self._version is None:  # it imports; what does that at a higher niceness may never be done
            return silent_s < SILENCE_S and self._started_in.niceness <= spec.engine.loader_niceness
        return silent_s < SPEAKING_S and self._version == WIRE_VERSION

    def _hear(self, role: str, message: AnyMessage) -> None:
        match message:
            case Hello():
                self._version = message.version
            case StartFailed():
                self._refusal = message.failure.message
            case _:
                pass

    def _tell(self, why: str) -> None:
        self._why = why
        self._metrics.spare_worker(up=self._ahead is not None)
        self._show(self._device)

    def _show(self, *devices: str) -> None:
        for device in devices:
            self._metrics.memory(device, "spare", self._ledger.by_use(device)["spare"])


def _comparable(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in THREAD_COUNTS}


def _moved(ahead: Ahead, spec: ReplicaSpec) -> bool:
    """Is it on the cores that are meant? Where that cannot be, a new process fails, and the load says so."""
    try:
        hold_to(ahead.worker.child.pid, spec.cores)
    except OSError:
        ahead.worker.child.kill()  # it may be half moved
        return False
    return True
