"""What a reload does to one model: load, switch, reclaim.

`converge` is read from top to bottom. Every step is undone where it failed: what was made ready for the
switch is dropped (`turns` has each way and its inverse), a replace loads the old spec again. Owns the order of
the steps; must never decide what is wanted (`plan` does) or which request goes where (`router` does).
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from halogend.control.admission import Superseded, unless_superseded
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.load import load, present_fingerprint
from halogend.control.probation import Probation
from halogend.control.receipts import ModelRecord
from halogend.control.reclaim import reclaim
from halogend.control.replica import UpdateError
from halogend.control.retired import Retired
from halogend.control.startup import StartError
from halogend.control.target import Target
from halogend.control.turns import Turn, Withdraw, assign, retire, take_back, update
from halogend.control.unit import Change, Unit
from halogend.control.waits import first_of

_log = structlog.get_logger()


async def converge(unit: Unit, change: Change, house: House) -> None:
    """Brings one model to `change.target`. Whatever fails ends in the change's record, with the
    state that was before; reclaim goes on in the background and closes the change."""
    before = unit.active
    try:
        turn = await _make_ready(unit, change, house)
    except Superseded:
        change.closed()
        return
    except (StartError, UpdateError) as error:
        _log.error("change_failed", model=unit.name, error=str(error))
        change.failed(str(error))
        await restore(unit, before, house, str(error))
        change.closed()
        return
    old = turn.commit()
    unit.reclaim(_reclaim_and_close(unit, old, house, change))
    change.served()


async def _make_ready(unit: Unit, change: Change, house: House) -> Turn:
    """Everything up to the moment at which the target serves. Raises Superseded, StartError, UpdateError."""
    target = change.target
    if target is None:
        return Withdraw(unit, house)
    if unit.serves(target):
        return await update(unit, target, house, change.record)
    house.router.open(unit.name, target.settings)
    if (retired := unit.returnable(target)) is not None:
        return await take_back(unit, target, house, change.record, retired)
    await _until_reclaimed(unit, target)
    if target.replaces and unit.serving is not None:
        await _hold_and_reclaim(unit, target, house, change.record)
    newcomer = await load(unit, target, house, change.record, target.inputs.checkpoint[1])
    return Replace(unit, target, house, change.record, newcomer)


@dataclass(frozen=True, slots=True)
class Replace:
    """The fourth of `turns`: another generation is loaded."""

    unit: Unit
    target: Target
    house: House
    record: ModelRecord | None
    newcomer: Generation

    @property
    def relies_on(self) -> Generation | None:
        return self.newcomer

    def commit(self) -> Retired | None:
        self.unit.deaths.clear()
        retired = assign(self.unit, self.target, self.newcomer, self.house, self.record)
        terms = self.target.config.probation
        if terms is not None and retired is not None and retired.generation.is_alive:
            retired.park()
            self.unit.probation = Probation(terms, self.newcomer.number)
            self.house.router.watch(self.unit.name, self.unit.probation.record)
        return retired

    async def undo(self) -> None:
        await self.newcomer.stop()
        self.house.leave(self.newcomer)


async def grow(unit: Unit, house: House) -> None:
    """The pool takes what came free, up to its target."""
    if unit.active is None or not unit.serves(unit.active):
        return
    try:
        (await update(unit, unit.active, house, None)).commit()
    except UpdateError as error:
        _log.warning("pool_not_grown", model=unit.name, error=str(error))


async def _hold_and_reclaim(unit: Unit, target: Target, house: House, record: ModelRecord) -> None:
    """Replace: requests wait in the router while the old generation drains and ends."""
    old = retire(unit, house)
    house.router.hold(unit.name)
    unit.serving = None
    if old is not None:
        await unless_superseded(unit, target, unit.reclaim(reclaim(unit, old, house, record)))


async def _until_reclaimed(unit: Unit, target: Target) -> None:
    """At most one old generation of a model exists; a dead one does not count."""
    while unit.reclaims and (serving := unit.alive()) is not None:
        await unless_superseded(unit, target, first_of(unit.woken(), serving.died.wait()))


async def _reclaim_and_close(unit: Unit, old: Retired | None, house: House, change: Change) -> None:
    try:
        while old is not None:
            await reclaim(unit, old, house, change.record)
            old, change.then = change.then, None
        await _until_departed(unit)
        if not unit.is_wanted and unit.newer is None:
            house.metrics.forget(unit.name)
    finally:
        change.closed()


def roll_back(unit: Unit, parked: Retired, house: House) -> None:
    """The inverse of a switch, while the new generation is on probation: one assignment, no load."""
    bad, probation, change = unit.serving, unit.probation, unit.open_change
    if bad is None or probation is None or change is None:
        raise ValueError(f"{unit.name} is not on probation")
    reason = probation.failed or f"generation {bad.number} died: {bad.reason}"
    _log.error("rolled_back", model=unit.name, generation=bad.number, reason=reason, tail=bad.stderr_tail)
    unit.probation = None
    unit.retired.remove(parked)
    change.then = assign(unit, parked.target, parked.generation, house, change.record)
    unit.degraded = f"RolledBack: {reason}; generation {parked.generation.number} serves again"
    parked.returned()
    change.rolled_back(reason)


async def _until_departed(unit: Unit) -> None:
    """No replica of what serves is on its way out."""
    while (serving := unit.alive()) is not None and serving.leaving:
        await first_of(unit.woken(), serving.died.wait())


async def restore(unit: Unit, before: Target | None, house: House, reason: str) -> None:
    """The inverse of a replace: the old spec is loaded again. Where there was none, or it fails as
    well, requests are told why."""
    if unit.serving is not None:
        return
    unit.trouble = reason
    if before is None:
        house.router.give_up(unit.name, reason)
        return
    try:
        newcomer = await load(unit, before, house, None, await present_fingerprint(before))
    except Superseded:
        return
    except StartError as error:
        unit.trouble = f"{reason}; and the old one did not come back: {error}"
        house.router.give_up(unit.name, unit.trouble)
        return
    assign(unit, before, newcomer, house, None)
