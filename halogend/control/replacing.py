"""The turn that gives a model's name to another generation: loaded for this change, or for one before it.

The fourth of `turns`. Owns what becomes of a newcomer when it serves, when nothing comes of it, and when a newer
change needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

from halogend.control.adjust import Adjustment, gained, prepare
from halogend.control.barrier import Turn
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.probation import Probation
from halogend.control.receipts import ModelRecord
from halogend.control.retired import Retired
from halogend.control.target import Target, Way
from halogend.control.turns import switching, take_over, welcome
from halogend.control.unit import Arrived, Unit


async def taken_up(unit: Unit, target: Target | None, house: House) -> Arrived | None:
    """What was loaded for an earlier change, if it does for this one; otherwise it ends."""
    arrived, unit.arrived = unit.arrived, None
    if arrived is None:
        return None
    does = target is not None and target.same_generation(arrived.target) and not gained(arrived.generation, target)
    if does and arrived.generation.is_alive:
        return arrived
    unit.loading = None
    await house.end_all(arrived.generation)
    return None


async def adopt(unit: Unit, target: Target, house: House, record: ModelRecord | None, arrived: Arrived) -> Turn:
    """What was loaded for an earlier change, made ready for this one. Raises UpdateError; it has ended then."""
    newcomer = arrived.generation
    try:
        async with house.step(record, "adopt") as step:
            step.detail.update(generation=newcomer.number)
            adjustment = await prepare(newcomer, arrived.target, target, house)
    except BaseException:
        unit.loading = None
        await house.end_all(newcomer)
        raise
    return Replace(unit, target, house, record, newcomer, adjustment, arrived.target)


@dataclass(frozen=True, slots=True)
class Replace:
    """`adjustment` is what differs from what it was loaded for, `loaded_for`; replicas that are wanted no more go."""

    unit: Unit
    target: Target
    house: House
    record: ModelRecord | None
    newcomer: Generation
    adjustment: Adjustment | None = None
    loaded_for: Target | None = None

    @property
    def relies_on(self) -> Generation | None:
        return self.newcomer

    @property
    def is_made(self) -> bool:
        return self.unit.serving is self.newcomer

    def commit(self) -> Retired | None:
        with switching(self.house, self.record, self.newcomer):
            self.unit.deaths.clear()
            self.unit.loading = None
            if self.adjustment is not None:
                self.adjustment.commit()
            retired = take_over(self.unit, self.target, self.newcomer, self.house)
            terms = self.target.config.probation
            if terms is not None and retired is not None and retired.generation.is_alive:
                retired.park()
                self.unit.probation = Probation(terms, self.newcomer.number)
                self.house.router.watch(self.unit.name, self.unit.probation.record)
            if self.adjustment is not None:
                welcome(self.unit, self.adjustment, self.loaded_for, self.house, self.record)
        return retired

    def rest(self) -> None:
        """Nobody asks the newcomer for anything."""

    async def arm(self) -> None:
        """It is."""

    async def undo(self) -> None:
        self.unit.loading = None
        if self.target.way is Way.ROLLING:
            self.house.router.serve_alone(self.unit.name)
        await self.house.end_all(self.newcomer)
        if self.unit.serving is not None:
            self.unit.serving.miss_all()  # whose replicas gave way to it: it is started again as one that died
        self.unit.poke()  # an old pool that gave memory for it takes that again

    async def keep(self) -> None:
        """As `undo`, for a newer change that needs what was loaded."""
        if self.adjustment is not None:
            await self.adjustment.discard()
        self.unit.arrived = Arrived(self.newcomer, self.target)
