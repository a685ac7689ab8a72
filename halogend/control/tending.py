"""One model's life: its changes and its engine's deaths, one after the other."""

from __future__ import annotations

import structlog

from halogend.config.codes import Code
from halogend.control.change import Change
from halogend.control.converge import converge, give_up, grow
from halogend.control.house import House
from halogend.control.receipts import Outcome
from halogend.control.recover import recover
from halogend.control.restoring import restore, roll_back
from halogend.control.unit import Unit

_log = structlog.get_logger()


async def tend(unit: Unit, house: House) -> None:
    """Until the model is removed and reclaimed; then its unit is gone."""
    while not unit.is_finished:
        await unit.until_needed()
        change = unit.begin()
        try:
            if change is not None:
                await converge(unit, change, house)
            elif (parked := unit.way_back()) is not None:
                roll_back(unit, parked, house)
            elif unit.probation is not None and unit.probation.failed:
                unit.end_probation()  # and nothing to go back to
            elif unit.serving is not None and unit.alive() is None:
                unit.end_probation()
                await recover(unit, house)
            else:
                await grow(unit, house)
        except Exception as error:  # noqa: BLE001  the task must live: the next change may mend it
            _log.exception("converge_failed", model=unit.name)
            await _after_fault(unit, change, house, f"{Code.INTERNAL}: {error!r}")
        finally:
            unit.end()
        if change is not None and change.record.outcome in (Outcome.FAILED, Outcome.SUPERSEDED):
            house.tell_of_room()  # what waited for its load waits no more
    del house.units[unit.name]


async def _after_fault(unit: Unit, change: Change | None, house: House, reason: str) -> None:
    """A fault of our own: what served before is brought back, or nobody waits for what will not come."""
    try:
        if change is not None:
            await give_up(unit, change, unit.active, house, reason)
        elif unit.alive() is None and house.router.route(unit.name) is not None:
            await restore(unit, unit.active, house, reason)
    except Exception:  # noqa: BLE001  the second fault: nothing is tried any more
        _log.exception("restore_failed", model=unit.name)
        unit.trouble = reason
        if house.router.route(unit.name) is not None:
            house.router.give_up(unit.name, reason)
    finally:
        if change is not None:
            change.closed()
