"""One model's life: its changes and its engine's deaths, one after the other."""

from __future__ import annotations

import structlog

from halogend.config.codes import Code
from halogend.control.converge import converge, grow, roll_back
from halogend.control.house import House
from halogend.control.recover import recover
from halogend.control.unit import Change, Unit

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
            _give_up(unit, change, house, f"{Code.INTERNAL}: {error!r}")
        finally:
            unit.end()
    del house.units[unit.name]


def _give_up(unit: Unit, change: Change | None, house: House, reason: str) -> None:
    """After a fault of our own: nobody waits for what will not come."""
    if unit.alive() is None:
        unit.trouble = reason
        if house.router.route(unit.name) is not None:
            house.router.give_up(unit.name, reason)
    if change is not None:
        change.failed(reason)
        change.closed()
