"""The four ways one model comes to its target, each made ready, then taken or undone.

    way        made ready                            commit                         undo
    -------    ----------------------------------    ---------------------------    --------------------------
    withdraw   nothing                               its names are unknown          nothing
    update     its workers hold the live change      they take it                   they drop it
    replace    another generation is loaded          the router gives it the name   the newcomer ends
    take back  an old one's drain stops, and its     the router gives it the name   they drop it, and its drain
               workers hold what differs             again, they take it            goes on

`replacing` has the third. Owns the step from ready to done and back. The order in which models do it is
convergence's. A commit that a fault of ours cut short `is_made` all the same where the model was assigned; then it
is undone by the way back, which is a change as any other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog

from halogend.control.adjust import Adjustment, Joining, gained, prepare
from halogend.control.admission import Wanted
from halogend.control.drain import Drain
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.load import load_replicas
from halogend.control.mend import nurse
from halogend.control.receipts import ModelRecord
from halogend.control.reclaim import begin_leave, dismiss, drain_limit_s
from halogend.control.replica import Replica
from halogend.control.replica_changes import UpdateError
from halogend.control.retired import Leaver, Retired
from halogend.control.target import Target
from halogend.control.unit import Unit
from halogend.control.waits import first_of

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Withdraw:
    unit: Unit
    house: House

    @property
    def relies_on(self) -> Generation | None:
        return None

    @property
    def is_made(self) -> bool:
        return self.house.router.route(self.unit.name) is None

    def commit(self) -> Retired | None:
        """The model's names are unknown from now on."""
        retired = retire(self.unit, self.house)
        self.unit.serving = self.unit.active = self.unit.trouble = None
        self.house.router.close(self.unit.name)
        return retired

    def rest(self) -> None:
        """Nothing was made ready."""

    async def arm(self) -> None:
        """Nothing is."""

    async def undo(self) -> None:
        """Nothing was."""


@dataclass(slots=True)
class Update:
    """`rests`: it was found possible, and its workers have forgotten it."""

    unit: Unit
    target: Target
    house: House
    record: ModelRecord | None
    adjustment: Adjustment
    rests: bool = False

    @property
    def relies_on(self) -> Generation | None:
        return self.adjustment.generation

    @property
    def is_made(self) -> bool:
        return self.unit.active is self.target

    def commit(self) -> Retired | None:
        before = self.unit.active
        self.adjustment.commit()
        self.house.router.set_settings(self.unit.name, self.target.settings)
        self.unit.active = self.target
        welcome(self.unit, self.adjustment, before, self.house, self.record)
        return None

    def rest(self) -> None:
        """A smaller pool that is only held ready would refuse requests that the old one takes."""
        self.adjustment.rest()
        self.rests = True

    async def arm(self) -> None:
        """With what there is room for now. Raises UpdateError."""
        held, active = self.adjustment, self.unit.active
        if active is None:
            raise UpdateError(f"{self.unit.name} does not serve")
        self.adjustment = await prepare(held.generation, active, self.target, self.house, joining=held.joining)
        self.rests = False
        held.unclaim()

    async def undo(self) -> None:
        await (self.adjustment.let_go() if self.rests else self.adjustment.discard())


@dataclass(frozen=True, slots=True)
class TakeBack:
    unit: Unit
    target: Target
    house: House
    record: ModelRecord | None
    retired: Retired
    adjustment: Adjustment

    @property
    def relies_on(self) -> Generation | None:
        return self.retired.generation

    @property
    def is_made(self) -> bool:
        return self.unit.serving is self.retired.generation

    def commit(self) -> Retired | None:
        with switching(self.house, self.record, self.retired.generation):
            self.unit.retired.remove(self.retired)
            self.retired.returned()
            self.unit.deaths.clear()
            self.adjustment.commit()
            before = take_over(self.unit, self.target, self.retired.generation, self.house)
            welcome(self.unit, self.adjustment, self.retired.target, self.house, self.record)
        return before

    def rest(self) -> None:
        """Its drain stands still; it takes no new request that what is prepared could refuse."""

    async def arm(self) -> None:
        """It is."""

    async def undo(self) -> None:
        await self.adjustment.discard()
        self.retired.put_back()


async def update(unit: Unit, target: Target, house: House, record: ModelRecord | None) -> Update:
    """Live fields in place. Raises UpdateError."""
    if unit.serving is None or unit.active is None:
        raise UpdateError(f"{unit.name} does not serve")
    async with house.step(record, "update"):
        adjustment = await _adjusted(unit, unit.serving, unit.active, target, house, record)
    return Update(unit, target, house, record, adjustment)


async def _adjusted(
    unit: Unit, generation: Generation, active: Target, target: Target, house: House, record: ModelRecord | None
) -> Adjustment:
    """With the replicas that it gains: those that were to leave it are taken back, the others are loaded. Raises
    UpdateError, StartError, Superseded; these are gone then, and those drain on."""
    new = gained(generation, target)
    returners = _taken(unit, generation, new, house, record)
    try:
        new = [part for part in new if part.device not in {each.replica.spec.device for each in returners}]
        newcomers = await _loaded(unit, generation, Wanted(target, new, join=True), house, record) if new else ()
        try:
            return await prepare(generation, active, target, house, joining=Joining(newcomers, returners))
        except BaseException:
            await house.end(newcomers)
            raise
    except BaseException:
        Joining(returners=returners).put_back()
        raise


async def _loaded(
    unit: Unit, generation: Generation, wanted: Wanted, house: House, record: ModelRecord | None
) -> tuple[Replica, ...]:
    """Its further replicas, as long as it lives itself: once it has died it is started again, and nothing of that waits
    for them. Raises UpdateError, and as `load_replicas`."""
    loading = asyncio.create_task(load_replicas(unit, generation, wanted, house, record))
    try:
        await first_of(asyncio.wait([loading]), generation.died.wait())
    except BaseException:
        await _given_up(loading, house)
        raise
    if not loading.done():
        await _given_up(loading, house)
        raise UpdateError(f"generation {generation.number}, which they were to join, died: {generation.reason}")
    return loading.result()


async def _given_up(loading: asyncio.Task[tuple[Replica, ...]], house: House) -> None:
    """Also where it had just come to its end."""
    loading.cancel()
    (came,) = await asyncio.gather(loading, return_exceptions=True)
    await house.end(came if isinstance(came, tuple) else ())


def _taken(
    unit: Unit, generation: Generation, parts: Iterable[Target], house: House, record: ModelRecord | None
) -> tuple[Leaver, ...]:
    """Replicas that were to leave, and are what these parts need; their drain stands still from now on."""
    found = [leaver for part in parts if (leaver := unit.leaver_for(part, generation)) is not None]
    if found:
        with house.moment(record, "take_back") as step:
            step.detail.update(replicas=[each.replica.name for each in found])
            for each in found:
                each.take()
    return tuple(found)


async def take_back(unit: Unit, target: Target, house: House, record: ModelRecord | None, retired: Retired) -> TakeBack:
    """Without a load: the generation is there. Raises UpdateError; then it drains on."""
    retired.take()
    try:
        async with house.step(record, "take_back") as step:
            step.detail.update(generation=retired.generation.number)
            adjustment = await _adjusted(unit, retired.generation, retired.target, target, house, record)
    except BaseException:
        retired.put_back()
        raise
    return TakeBack(unit, target, house, record, retired, adjustment)


def welcome(
    unit: Unit, adjustment: Adjustment, before: Target | None, house: House, record: ModelRecord | None
) -> None:
    """Replicas that came serve from now on, and those that go drain: they were parts of `before`."""
    generation = adjustment.generation
    house.cores.join(*adjustment.joining.newcomers)
    house.show_replicas(generation)
    for leaver in adjustment.leavers:
        house.router.go_over(unit.name, leaver)
        part = None if before is None else before.part_on(leaver.spec.device)
        unit.reclaim(dismiss(unit, begin_leave(unit, generation, leaver, part, house), house, record))


def assign(
    unit: Unit, target: Target, generation: Generation, house: House, record: ModelRecord | None
) -> Retired | None:
    """One assignment in the router. Returns the generation that served before."""
    with switching(house, record, generation):
        return take_over(unit, target, generation, house)


@contextlib.contextmanager
def switching(house: House, record: ModelRecord | None, generation: Generation) -> Iterator[None]:
    """The step of whatever is done at that moment."""
    with house.moment(record, "switch") as step:
        step.detail.update(generation=generation.number)
        yield


def take_over(unit: Unit, target: Target, generation: Generation, house: House) -> Retired | None:
    """The assignment itself, as `assign`."""
    retired = retire(unit, house)
    house.router.switch(unit.name, generation, target.settings)
    unit.serving, unit.active = generation, target
    unit.trouble = unit.degraded = None
    house.cores.join(*generation.replicas)
    nurse(unit, generation, house)
    house.state(generation, "serving")
    house.metrics.engine_up(unit.name, generation.number, up=True)
    _log.info("generation_serving", model=unit.name, generation=generation.number, path=target.config.model)
    return retired


def retire(unit: Unit, house: House) -> Retired | None:
    """What serves drains from now on: by the limit it served under, and the durations it was measured by."""
    if unit.serving is None or unit.active is None:
        return None
    retired = Retired(unit.serving, unit.active, Drain(drain_limit_s(unit, house)))
    unit.retired.append(retired)
    return retired
