"""One model's generations and what is wanted of them.

Single writer: the model's own task (`reconciler.Reconciler` starts one for each unit). Everybody
else only says what is wanted (`want`), that there may be room (`poke`), or reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from halogend.control.change import Change
from halogend.control.drain import Drain
from halogend.control.generation import Generation
from halogend.control.probation import Probation
from halogend.control.retired import Leaver, Retired, Stage
from halogend.control.target import Target
from halogend.control.waits import first_of

_log = structlog.get_logger()
REFUSED_S = (1.0, 2.0, 5.0, 10.0, 60.0)  # before a pool that may not grow tries again: the first time, ... all others


@dataclass(frozen=True, slots=True)
class Arrived:
    """A generation that is loaded and waits for the change that takes it up; `target` is what it was loaded for."""

    generation: Generation
    target: Target


class Unit:
    """`active` is what serves, or served last; `goal` what it will be when all is done.

    `trouble` says why nothing serves although it should, `degraded` what is wrong with what does: also
    that it serves because what should was `rolled_back`.
    A removed model's unit stays until its memory came back; added again, it goes on counting.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.active: Target | None = None
        self.serving: Generation | None = None
        self.loading: Generation | None = None
        self.arrived: Arrived | None = None
        self.retired: list[Retired] = []
        self.leavers: list[Leaver] = []
        self.reclaims: set[asyncio.Task[None]] = set()
        self.probation: Probation | None = None
        self.trouble: str | None = None
        self.rolled_back = ""
        self._degraded: str | None = None
        self.deaths: list[float] = []
        self.is_wanted = True
        self._pending: Change | None = None
        self._current: Change | None = None
        self._last: Change | None = None
        self._poked = False
        self._refusals = 0
        self._retry: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._numbers = 0

    @property
    def degraded(self) -> str | None:
        wrong = [
            *(each for each in (self.rolled_back, self._degraded) if each),
            *([] if self.serving is None else self.serving.wounds()),
        ]
        return "; ".join(wrong) or None

    @degraded.setter
    def degraded(self, why: str | None) -> None:
        """Of the whole generation; what is wrong with a replica it says itself."""
        self._degraded, self.rolled_back = why, ""

    @property
    def under_way(self) -> Change | None:
        """The change that is made now."""
        return self._current

    @property
    def wanted(self) -> Change | None:
        """The newest change that is not made."""
        return self._pending or self._current

    @property
    def goal(self) -> Target | None:
        return self.active if self.wanted is None else self.wanted.target

    @property
    def filling(self) -> Generation | None:
        """What is loaded now: another generation, or the one that serves, which gains replicas."""
        joins = self.serving is not None and bool(self.serving.coming)
        return self.serving if self.loading is None and joins else self.loading

    @property
    def coming(self) -> Target | None:
        """What the load that runs is for: of another generation, or of replicas that join the one that serves."""
        if self.filling is None:
            return None
        if self.arrived is not None:
            return self.arrived.target
        return self.active if self._current is None else self._current.target

    @property
    def draining(self) -> list[Generation]:
        """On their way out, oldest first."""
        return [each.generation for each in self.retired if each.stage is not Stage.PARKED]

    @property
    def parked(self) -> Generation | None:
        """It stands by, while what serves is on probation."""
        return next((each.generation for each in self.retired if each.stage is Stage.PARKED), None)

    @property
    def departing(self) -> list[Leaver]:
        """Replicas on their way out of a generation that goes on, oldest first."""
        return [each for each in self.leavers if each.stage is not Stage.RETURNED]

    @property
    def drains(self) -> dict[Generation, Drain]:
        """The time limits of those in `draining`."""
        return {each.generation: each.drain for each in self.retired if each.stage is not Stage.PARKED}

    @property
    def generations(self) -> list[Generation]:
        """All that serve or served or are to serve, and have processes; one that loads ends by itself."""
        own = (self.serving, None if self.arrived is None else self.arrived.generation)
        return [*(each.generation for each in self.retired), *(each for each in own if each is not None)]

    @property
    def open_change(self) -> Change | None:
        """The newest change that is not closed."""
        return next((each for each in (self._pending, self._current, self._last) if _is_open(each)), None)

    @property
    def newer(self) -> Change | None:
        """A change that is wanted and not begun."""
        return self._pending

    @property
    def is_finished(self) -> bool:
        """Not wanted, nothing left of it."""
        return not self.is_wanted and self._pending is None and not self.reclaims

    def alive(self) -> Generation | None:
        """The serving generation, if it has not died."""
        return None if self.serving is None or self.serving.died.is_set() else self.serving

    def serves(self, target: Target) -> bool:
        """Is the generation that serves the one this target needs?"""
        return self.alive() is not None and self.active is not None and self.active.same_generation(target)

    def returnable(self, target: Target) -> Retired | None:
        """The generation that served before and is what this target needs: it need not be loaded."""
        found = (each for each in reversed(self.retired) if each.may_return and each.target.same_generation(target))
        return next(found, None)

    def leaver_for(self, part: Target, generation: Generation | None) -> Leaver | None:
        """The newest replica that leaves this generation and is what `part` needs: it need not be loaded."""
        found = (each for each in reversed(self.leavers) if each.generation is generation and each.does_for(part))
        return next(found, None)

    def is_superseded(self, target: Target, parts: Sequence[Target] = ()) -> bool:
        """Does a newer change need another generation than `target`, or has it no place for one of `parts`?"""
        if self._pending is None:
            return self._is_broken(target)
        newer = self._pending.target
        if newer is None or not target.same_generation(newer):
            return True
        return not {part.device for part in parts} <= {part.device for part in newer.parts}

    def _is_broken(self, target: Target) -> bool:
        """Will the atomic change that this target is of never be made?"""
        change = self._current
        if change is None or change.barrier is None or change.target is not target:
            return False
        return change.barrier.is_broken

    def want(self, change: Change) -> None:
        """A change that has not begun gives way to a newer one."""
        if self._pending is not None:
            self._pending.closed()
        self._pending = change
        self.end_probation(keep=change.target)
        self.is_wanted = change.target is not None
        self._wake()

    def way_back(self) -> Retired | None:
        """Where to go, when what serves has failed its probation."""
        serving = self.alive()
        if self.probation is None or (serving is not None and not self.probation.failed):
            return None
        return next((each for each in self.retired if each.stage is Stage.PARKED and each.may_return), None)

    def end_probation(self, keep: Target | None = None) -> None:
        """Whatever serves stays, and what stood by is on its way out, unless it is what `keep` needs. That something
        else was asked for, and rolled back, is history where `keep` is what serves."""
        self.probation = None
        if keep is None or self.serves(keep):
            self.rolled_back = ""
        kept = None if keep is None or self.serves(keep) else self.returnable(keep)
        for each in self.retired:
            if each is not kept:
                each.unpark()

    def poke(self) -> None:
        """Memory came free: look whether the pool may grow."""
        self._poked = True
        self._wake()

    def grew(self) -> None:
        """Its pool has what there is room for."""
        self._refusals = 0

    def refused_to_grow(self) -> None:
        """Looks again later, ever more seldom: the room is there, and nobody else would tell of it."""
        if self._retry is not None:
            self._retry.cancel()
        self._retry = asyncio.get_running_loop().call_later(
            REFUSED_S[min(self._refusals, len(REFUSED_S) - 1)], self.poke
        )
        self._refusals += 1

    def wake(self) -> None:
        """Whoever waits here looks whether it should go on."""
        self._wake()

    def takes_up(self, target: Target) -> bool:
        """Does a change that is wanted and not begun need the generation that was loaded for `target`?"""
        newer = None if self._pending is None else self._pending.target
        return newer is not None and newer.same_generation(target)

    def unwish(self) -> None:
        """The inverse of `want`, where nothing came of it: wanted is what was there before."""
        if self._pending is None:
            self.is_wanted = self.active is not None or self.trouble is not None

    def begin(self) -> Change | None:
        """The change to make now, if one is wanted."""
        self._current, self._pending, self._poked = self._pending, None, False
        return self._current

    def end(self) -> None:
        """The change is made; its reclaim may still go on."""
        self._last, self._current = self._current or self._last, None

    def reclaim(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Goes on in the background; several may, each with its generation in `draining`."""
        task = asyncio.create_task(work)
        self.reclaims.add(task)
        task.add_done_callback(self._reclaimed)
        return task

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def woken(self) -> Coroutine[Any, Any, object]:
        """Done when something new is wanted, or memory came free, or a reclaim ended, from this call
        on: also what happens before it is first awaited."""
        return self._woken.wait()

    async def until_wanted(self) -> None:
        """Returns when a change is wanted that has not begun."""
        while self._pending is None:
            await self.woken()

    async def until_needed(self) -> None:
        """Returns when there is something to do: a change, room, a death, or the end of it all."""
        ends = [] if self.serving is None else [self.serving.died.wait()]
        verdict = [] if self.probation is None else [self.probation.decided.wait()]
        await first_of(self._until_woken(), *ends, *verdict)

    async def _until_woken(self) -> None:
        while self._pending is None and not self._poked and not self.is_finished:
            await self.woken()

    def _wake(self) -> None:
        self._woken.set()
        self._woken = asyncio.Event()

    def _reclaimed(self, task: asyncio.Task[None]) -> None:
        self.reclaims.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("reclaim_failed", model=self.name, exc_info=error)
        self._wake()


def _is_open(change: Change | None) -> bool:
    return change is not None and not change.record.is_closed
