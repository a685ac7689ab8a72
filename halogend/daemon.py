"""The composition root: builds everything, takes the signals, and ends everything in order.

Start: machine, source, reconciler, first document (a bad one ends with exit status 78), listeners,
first load (where nothing can be loaded: 69), then ready.
Stop: no new connection or request, drain up to the deadline, honest ends, generations, exit 0.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from halogend import version
from halogend.api.activation import Activation
from halogend.api.admin import admin_app
from halogend.api.app import inference_app
from halogend.api.applications import Applications
from halogend.api.listeners import Listeners
from halogend.api.services import Services
from halogend.config.schema import Document
from halogend.control.acceptance import Source
from halogend.control.administration import Administration
from halogend.control.cores import Cores
from halogend.control.devices_watch import DeviceWatch
from halogend.control.file_source import FileSource
from halogend.control.generation import Generation
from halogend.control.history import History
from halogend.control.house import House
from halogend.control.input_watch import InputWatch
from halogend.control.ledger import Ledger
from halogend.control.lookout import Lookout
from halogend.control.machine import probe
from halogend.control.notify import Notifier
from halogend.control.process import Host
from halogend.control.receipts import Outcome, Receipt
from halogend.control.reclaim import drain_limit_s
from halogend.control.reconciler import Reconciler
from halogend.control.router import Router
from halogend.control.source import AnySource, Content, PushedSource, StatedSource
from halogend.control.source_files import read_content
from halogend.control.standing import standing
from halogend.control.state_dir import StateDir, StateError
from halogend.control.steering import Steering
from halogend.control.supervisor import Supervisor
from halogend.control.waits import first_of
from halogend.obs.exits import Exit
from halogend.obs.metrics import Metrics
from halogend.wire.process import hand_over_soon

_log = structlog.get_logger()
STOP_DRAIN_S = 30.0
_CLOSE_S = 5.0
_ENDS_S = _CLOSE_S + 10.0  # 10: generations end, and are killed after half of it
STOP_LIMIT_S = STOP_DRAIN_S + _ENDS_S


@dataclass(frozen=True, slots=True)
class Options:
    """From the command line. `config` is the document's file or the document itself; `admin` is used
    where the document names no admin listener; `state` is where receipts and active documents are kept;
    `resume` starts from the last active document where the source's is bad; `is_pushed`: documents are
    handed in, and `config` is read at the start only; `kernel_cache` is where compiled
    kernels are kept unless a document says; `stop_drain_s` is how long requests may go on at the stop, None: as long
    as the document lets a model drain."""

    config: Path | StatedSource
    admin: str
    environ: Mapping[str, str]
    state: Path | None = None
    resume: bool = False
    is_pushed: bool = False
    kernel_cache: Path | None = None
    stop_drain_s: float | None = STOP_DRAIN_S


async def run(options: Options) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit status."""
    hand_over_soon()
    daemon = Daemon(options)
    return await daemon.run()


class Daemon:
    """Single writer of everything it builds; nothing here outlives `run`. `admin` is the operator's side of it."""

    def __init__(self, options: Options) -> None:
        machine = replace(probe(), kernel_cache=str(options.kernel_cache or ""))
        self._source = self._source_of(options)
        self._metrics = Metrics(version())
        self._router = Router(on_waiting=self._metrics.waiting_in_router)
        self._house = House(
            router=self._router,
            ledger=Ledger(),
            cores=Cores(machine.cores),
            host=Host(environ=options.environ, stderr=sys.stderr.buffer),
            metrics=self._metrics,
        )
        self._activation = Activation.from_environ(options.environ, os.getpid())
        applications = Applications(self.inference, self.administration)
        self._listeners = Listeners(applications, self._metrics, options.admin, self._activation)
        source = Source.of(self._source, options.environ)
        history = History(_state_dir(options.state))
        self._reconciler = Reconciler(self._house, machine, self._listeners, source, history)
        self._steering = Steering(self._reconciler, options.state)
        self._devices = DeviceWatch(machine, self._house, self._accepted)
        self._resume = options.resume
        self._stop_drain_s = options.stop_drain_s
        self._inputs = InputWatch(self._reconciler.signatures, self._reconciler.reread)
        self._notifier = Notifier.from_environ(options.environ, os.getpid())
        self._supervisor = Supervisor(self._reconciler, self._notifier)
        self._lookout = Lookout(self._reconciler, self._steering, self._source.view)
        self.admin = Administration(
            self._reconciler, self._steering, self._supervisor, self._lookout, self._house.clock(), self._views
        )
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> int:
        self._take_signals()
        supervising = asyncio.create_task(self._supervisor.run())
        looking = asyncio.create_task(self._lookout.run())
        feeling = asyncio.create_task(self._devices.run())
        sparing = asyncio.create_task(self._house.spare.keep(self._is_quiet))
        try:
            return await self._run()
        finally:
            supervising.cancel()
            looking.cancel()
            feeling.cancel()
            sparing.cancel()
            await asyncio.wait([sparing], timeout=_CLOSE_S)  # a process may hang in the kernel
            self._notifier.close()
            self._activation.close()

    async def _run(self) -> int:
        tried = await self._first_document()
        if tried is None:
            self._supervisor.ends(STOP_LIMIT_S)
            await self._end()
            return Exit.DONE
        if self._reconciler.accepted is None and (status := await self._why_not(tried)) is not None:
            return status
        _keep_what_is_there()
        self._source.start()
        keeping = asyncio.create_task(self._listeners.keep())
        watching = asyncio.create_task(self._inputs.run())
        starting = asyncio.create_task(self._supervisor.until_started())
        await first_of(self._stop.wait(), asyncio.wait([starting]))
        serves = self._stop.is_set() or starting.result()
        if not serves:
            _log.error("nothing_serves", standing=standing(self._reconciler))
            if self._source.stays:
                self._supervisor.is_up()
                serves = True
        if serves:
            await self._stop.wait()
        starting.cancel()
        keeping.cancel()
        watching.cancel()
        drain_s = self._drain_limit_s()
        self._supervisor.ends(drain_s + _ENDS_S, "" if serves else standing(self._reconciler))
        await self._drain(drain_s)
        await self._end()
        return Exit.DONE if serves else Exit.NOTHING_SERVES

    async def _why_not(self, tried: tuple[Receipt, ...]) -> Exit | None:
        """Without a document: None where one can be handed in, else how it ended. What it says last is the reason."""
        if self._source.stays:
            closed = await self._reconciler.listen()
            if closed is None:
                return None
            _log.error("no_listener", problem=str(closed))
            sys.stderr.write(f"{closed}\nno document can be handed in: there is no listener\n")
            reason, status = f"no listener can be had: {closed}", Exit.NOTHING_SERVES
        else:
            sys.stderr.writelines(f"{problem}\n" for receipt in tried for problem in receipt.problems)
            is_bad = not tried or tried[0].outcome is Outcome.REJECTED
            reason, status = standing(self._reconciler), Exit.BAD_DOCUMENT if is_bad else Exit.FAULT
        self._supervisor.ends(STOP_LIMIT_S, reason)
        await self._end()
        return status

    async def _first_document(self) -> tuple[Receipt, ...] | None:
        """What was tried; None where the end was asked for first: files may take long to answer."""
        trying = asyncio.create_task(self._steering.start(resume=self._resume))
        await first_of(self._stop.wait(), asyncio.wait([trying]))
        if trying.done():
            return trying.result()
        trying.cancel()
        await asyncio.wait([trying])
        return None

    def _source_of(self, options: Options) -> AnySource:
        config = options.config
        if isinstance(config, StatedSource):
            return config
        if options.is_pushed:
            return PushedSource(str(config), lambda: read_content(config) if os.path.lexists(config) else None)
        return FileSource(config, self._on_change)

    def inference(self) -> Any:
        return inference_app(Services(router=self._router, metrics=self._metrics))

    def administration(self) -> Any:
        return admin_app(self.admin)

    def _views(self) -> dict[str, Any]:
        devices = {"accelerators": self._devices.view(), "devices_not_seen": self._devices.troubles()}
        return {**self._listeners.view(), "source_watch": self._source.view(), **devices}

    def _is_quiet(self) -> bool:
        return self._house.is_quiet() and not self._stop.is_set()

    def _accepted(self) -> Document | None:
        accepted = self._reconciler.accepted
        return None if accepted is None else accepted.document

    # --- signals and ends -------------------------------------------------------------------------

    def _on_change(self, content: Content) -> None:
        self._supervisor.follow(self._reconciler.reload("file", "file", content))

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)

    def _on_hangup(self) -> None:
        self._supervisor.hung_up(self._reconciler.reload("signal", "SIGHUP"))

    def _on_stop(self) -> None:
        """The second signal ends the patience, not the order."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def _drain_limit_s(self) -> float:
        if self._stop_drain_s is not None:
            return self._stop_drain_s
        units = self._house.units.values()
        return max((drain_limit_s(each, self._house) for each in units), default=STOP_DRAIN_S)

    async def _drain(self, limit_s: float) -> None:
        _log.info("stopping", drain_s=limit_s)
        self._house.events.publish("daemon", state="stopping", drain_s=limit_s)
        await self._source.stop()
        self._listeners.stop_accepting()
        await first_of(self._listeners.until_asked(), self._hurry.wait())
        self._router.shut()
        await first_of(self._until_drained(), self._hurry.wait(), asyncio.sleep(limit_s))
        for generation in self._generations():
            for lease in list(generation.leases):
                lease.end("shutting_down", "the server stopped before the answer was complete")

    async def _end(self) -> None:
        self._house.events.close("shutting down")
        await self._listeners.close(_CLOSE_S)
        await self._reconciler.stop()
        await self._listeners.close(0)  # those of a document that was accepted meanwhile
        _log.info("stopped", pid=os.getpid())

    async def _until_drained(self) -> None:
        while busy := [generation for generation in self._generations() if generation.leases]:
            await busy[0].drained()

    def _generations(self) -> list[Generation]:
        units = self._house.units.values()
        return [each for unit in units for each in unit.generations]


def _keep_what_is_there() -> None:
    """The modules and what was built of them live as long as the process. To walk them in search of garbage takes some
    thirty milliseconds, for which every stream would wait."""
    gc.collect()
    gc.freeze()


def _state_dir(path: Path | None) -> StateDir | None:
    """Without one the daemon serves all the same, and forgets at its end."""
    if path is None:
        return None
    try:
        return StateDir.open(path)
    except StateError as error:
        _log.error("state_not_kept", error=str(error))
        return None
