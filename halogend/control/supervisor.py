"""The daemon's own loop: tells the service manager that it turns, how things stand, and that they move.

The watchdog starves when this loop is stuck, and for no other reason: an engine that is wedged is
killed and started again by its generation. Owns what is told when; how it is told is `notify`'s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

import structlog

from halogend.control.notify import Notifier
from halogend.control.receipts import Milestone, Receipt
from halogend.control.reconciler import Reconciler
from halogend.control.standing import standing, stopping
from halogend.control.unit import Unit

_log = structlog.get_logger()
_TICK_S = 1.0
_LOOK_S = 0.1
# A load without progress is judged by the daemon itself, after the model's own limit: the manager waits
# for that verdict, and so does not time a load at all.
_MARGIN_S = 30.0


class Supervisor:
    """`tick` is one turn of the loop; `clock` counts seconds."""

    def __init__(self, reconciler: Reconciler, notifier: Notifier, clock: Callable[[], float] = time.monotonic) -> None:
        self._reconciler = reconciler
        self._notifier = notifier
        self._clock = clock
        self._is_started = self._is_stopping = False
        self._open_hangups = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._told = self._reason = ""
        self._moved: object = None
        self._fed_at = float("-inf")

    @property
    def every_s(self) -> float:
        """How often to tick: twice in the watchdog's time, and at least once a second."""
        watchdog_s = self._notifier.watchdog_s
        return _TICK_S if watchdog_s is None else min(_TICK_S, watchdog_s / 2)

    async def run(self) -> None:
        while True:
            try:
                self.tick()
            except Exception:  # noqa: BLE001  a fault in what is told must not look like a loop that is stuck
                _log.exception("supervisor_failed")
            await asyncio.sleep(self.every_s)

    def tick(self) -> None:
        seconds = self._extension_s()
        if seconds is not None:
            self._notifier.extend(seconds)
        self._feed_watchdog()
        self._tell()

    def _tell(self) -> None:
        """The status, where it changed."""
        line = self._line()
        if line != self._told:
            self._told = line
            self._notifier.status(line)

    def _feed_watchdog(self) -> None:
        """By half of its time: a tick early rather than a tick late."""
        watchdog_s = self._notifier.watchdog_s
        if watchdog_s is not None and self._clock() - self._fed_at >= watchdog_s / 2 - self.every_s:
            self._fed_at = self._clock()
            self._notifier.watchdog()

    # --- start, reload, stop ------------------------------------------------------------------------

    async def until_started(self) -> bool:
        """True when as much serves as `server.ready` asks for, or else as much as could be had. False
        when every load has ended and nothing serves."""
        while not self._serves_enough():
            if self._is_decided():
                units = self._wanted()
                if units and not any(unit.active for unit in units):
                    return False
                break
            await asyncio.sleep(_LOOK_S)
        self.is_up()
        return True

    def is_up(self) -> None:
        """The start is over: what is asked for serves, or documents can be handed in."""
        self._is_started = True
        self._notifier.ready(standing(self._reconciler))

    def hung_up(self, receipt: Receipt) -> None:
        """A reload by SIGHUP: the manager's own way to ask for one. It hears of the end in any case, and
        of the last one's where several overlap."""
        if not self._is_started or self._is_stopping:
            return
        self._notifier.reloading("reading the document")
        self._open_hangups += 1
        self._spawn(self._until_reloaded(receipt))

    def follow(self, receipt: Receipt) -> None:
        """What came of it is told at once: whoever asked may look at the status as soon as he hears of it."""
        self._spawn(self._until_decided(receipt))

    def ends(self, within_s: float, reason: str = "") -> None:
        """The daemon stops, and is gone `within_s`. A `reason` stays as the last word of a daemon that
        was not asked to stop."""
        self._is_stopping, self._reason = True, reason
        for task in self._tasks:
            task.cancel()
        self._notifier.stopping(self._line(), within_s)

    def _line(self) -> str:
        if self._is_stopping:
            return self._reason or stopping(self._reconciler)
        return standing(self._reconciler)

    async def _until_reloaded(self, receipt: Receipt) -> None:
        await receipt.wait(Milestone.SERVING)
        self._open_hangups -= 1
        if not self._open_hangups:
            self._notifier.ready(standing(self._reconciler))

    async def _until_decided(self, receipt: Receipt) -> None:
        await receipt.wait(Milestone.SERVING)
        self._tell()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what is going on ---------------------------------------------------------------------------

    def _wanted(self) -> list[Unit]:
        return [unit for unit in self._reconciler.house.units.values() if unit.is_wanted]

    def _serves_enough(self) -> bool:
        return self._reconciler.house.router.ready(None)

    def _is_decided(self) -> bool:
        return all(receipt.outcome is not None for receipt in self._reconciler.receipts.all())

    def _extension_s(self) -> float | None:
        """While a start or a reload is under way: for how long the manager should wait on, or None
        when nothing moved."""
        if self._is_decided() or self._is_stopping:
            self._moved = None
            return None
        units = list(self._reconciler.house.units.values())
        if any(unit.draining for unit in units):  # has a time limit of its own
            return _MARGIN_S
        loading = [into for unit in units if (into := unit.filling) is not None]
        moved = [
            (replica.name, role, pulse.stage, pulse.counter, pulse.done)
            for each in loading
            for replica in each.parts
            for role, pulse in replica.pulses().items()
            if pulse.busy or pulse.heard_at is None
        ]
        if moved == self._moved:
            return None
        self._moved = moved
        return _MARGIN_S + max((each.spec.progress_timeout_s for each in loading), default=0.0)
