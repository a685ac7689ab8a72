"""What a reload does to one model: load, switch, reclaim.

`converge` is read from top to bottom, and what it calls stands below it in that order. Every step is undone where it
failed: what was made ready for the switch is dropped (`turns` has each way and its inverse), and what served before
serves again (`restoring`). Owns the order of the steps; must never decide what is wanted (`plan` does) or which request
goes where (`router` does).
"""

from __future__ import annotations

import structlog

from halogend.control.admission import Superseded, unless_superseded
from halogend.control.barrier import NotTogether, Turn
from halogend.control.change import Change
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.load import load
from halogend.control.receipts import ModelRecord
from halogend.control.reclaim import reclaim
from halogend.control.replacing import Replace, adopt, taken_up
from halogend.control.replica_changes import UpdateError
from halogend.control.restoring import restore
from halogend.control.retired import Retired
from halogend.control.rolling import roll
from halogend.control.startup import StartError
from halogend.control.target import Target, Way
from halogend.control.turns import Withdraw, retire, take_back, update
from halogend.control.unit import Unit
from halogend.control.waits import first_of

_log = structlog.get_logger()


async def converge(unit: Unit, change: Change, house: House) -> None:
    """Brings one model to `change.target`. Whatever fails ends in the change's record, with the
    state that was before; reclaim goes on in the background and closes the change."""
    before = unit.active
    try:
        turn = await _make_ready(unit, change.target, house, change.record, opens=change.barrier is None)
        old = await _switch(unit, change, turn, before, house)
    except (Superseded, NotTogether):
        if change.barrier is not None and change.barrier.is_broken:
            await _without_it(unit, change, before, house)
        change.closed()
        return
    except (StartError, UpdateError) as error:
        _log.error("change_failed", model=unit.name, error=str(error))
        await give_up(unit, change, before, house, str(error))
        change.closed()
        return
    unit.reclaim(_reclaim_and_close(unit, old, house, change))
    change.served()


async def _make_ready(
    unit: Unit, target: Target | None, house: House, record: ModelRecord | None, *, opens: bool = True
) -> Turn:
    """Everything up to the moment at which the target serves, by the first that does: nothing, where it is removed;
    what serves; what was loaded for a change before; what drains yet; a load. `opens`: its name is known from now on,
    and requests wait. Raises Superseded, StartError, UpdateError."""
    arrived = await taken_up(unit, target, house)
    if target is None:
        return Withdraw(unit, house)
    if unit.serves(target):
        return await update(unit, target, house, record)
    if opens:
        house.router.open(unit.name, target.settings)
    if arrived is not None:
        return await adopt(unit, target, house, record, arrived)
    if (retired := unit.returnable(target)) is not None:
        return await take_back(unit, target, house, record, retired)
    await _until_reclaimed(unit, target)
    if unit.serving is not None and (target.replaces or unit.alive() is None):
        await _hold_and_reclaim(unit, target, house, record)
    old = unit.alive()
    if target.way is Way.ROLLING and old is not None:
        newcomer = unit.loading = await roll(unit, old, target, house, record)
    else:
        newcomer = unit.loading = await load(unit, target, house, record, target.inputs.checkpoint[1])
    return Replace(unit, target, house, record, newcomer)


async def _hold_and_reclaim(unit: Unit, target: Target, house: House, record: ModelRecord | None) -> None:
    """Replace, or an old one that died: requests wait in the router while it drains and ends."""
    old = retire(unit, house)
    house.router.hold(unit.name)
    unit.serving = None
    if old is not None:
        await unless_superseded(unit, target, unit.reclaim(reclaim(unit, old, house, record)))


async def _until_reclaimed(unit: Unit, target: Target) -> None:
    """At most one old generation of a model exists; a dead one does not count."""
    while unit.reclaims and (serving := unit.alive()) is not None:
        await unless_superseded(unit, target, first_of(unit.woken(), serving.died.wait()))


async def _switch(unit: Unit, change: Change, turn: Turn, before: Target | None, house: House) -> Retired | None:
    """At once, or with the other models of an atomic change. Raises NotTogether; then it is undone, and what
    was loaded is kept for a newer change that needs it."""
    served = unit.serving
    try:
        return turn.commit() if change.barrier is None else await change.barrier.join(unit.name, turn)
    except BaseException as error:
        if turn.is_made:
            await _go_back(unit, served, before, house)
        elif isinstance(error, NotTogether) and isinstance(turn, Replace) and unit.takes_up(turn.target):
            await turn.keep()
        else:
            await turn.undo()
        raise


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


async def _until_departed(unit: Unit) -> None:
    """No replica of what serves is on its way out."""
    while (serving := unit.alive()) is not None and serving.leaving:
        await first_of(unit.woken(), serving.died.wait())


# --- where it is not made ---------------------------------------------------------------------------


async def give_up(unit: Unit, change: Change, before: Target | None, house: House, reason: str) -> None:
    """The change is not made, and the models that were to change with it do not either."""
    change.failed(reason)
    if change.barrier is None:
        await restore(unit, before, house, reason)
    else:
        change.barrier.fail(f"{unit.name}: {reason}")
        await _without_it(unit, change, before, house)


async def _without_it(unit: Unit, change: Change, before: Target | None, house: House) -> None:
    """The atomic change will not be made: all is as it was."""
    reason = "" if change.barrier is None else change.barrier.failure
    if reason and change.record.outcome is None:
        change.failed(f"not switched: {reason}")
    if unit.newer is not None:
        return
    if before is not None:
        await restore(unit, before, house, reason or "a newer document came")
    unit.unwish()
    if not unit.is_wanted:
        house.metrics.forget(unit.name)


async def _go_back(unit: Unit, served: Generation | None, before: Target | None, house: House) -> None:
    """A fault of ours came when the switch was made, or that of another model of an atomic change: to what was
    before, the way any change goes. What `served` needs no load, unless it has died. Raises as `_make_ready`; then
    what was made stays."""
    unit.loading = None
    unit.end_probation(keep=before)
    made: Retired | None = None
    try:
        if before is None:
            made = retire(unit, house)
            unit.serving = unit.active = None
            if house.router.route(unit.name) is not None:
                house.router.hold(unit.name)
        else:
            made = (await _make_ready(unit, before, house, None)).commit()
    finally:
        for each in [each for each in unit.retired if each is made or each.generation is served]:
            unit.reclaim(reclaim(unit, each, house, None))


# --- without a change -------------------------------------------------------------------------------


async def grow(unit: Unit, house: House) -> None:
    """The pool takes what came free, up to its target."""
    if unit.active is None or not unit.serves(unit.active):
        return
    try:
        (await update(unit, unit.active, house, None)).commit()
        unit.grew()
    except UpdateError as error:
        unit.refused_to_grow()
        _log.warning("pool_not_grown", model=unit.name, error=str(error))
