"""How what served before serves again: after a change that failed, after a fault, and while another is on probation.

Owns the ways back to a generation or its spec. When one is gone is `converge`'s business, and the model's own task's.
"""

from __future__ import annotations

import structlog

from halogend.control.admission import Superseded
from halogend.control.house import House
from halogend.control.load import load, present_fingerprint
from halogend.control.replica_changes import UpdateError
from halogend.control.retired import Retired
from halogend.control.startup import StartError
from halogend.control.target import Target
from halogend.control.turns import assign, switching, take_back, take_over
from halogend.control.unit import Unit

_log = structlog.get_logger()


async def restore(unit: Unit, before: Target | None, house: House, reason: str) -> None:
    """The inverse of a replace: the old generation is taken back while it drains, else its spec is loaded again.
    Where there was none, or it fails as well, requests are told why."""
    if unit.serving is not None:
        return
    unit.trouble = reason
    if before is None:
        house.router.give_up(unit.name, reason)
        return
    try:
        if await _comes_back(unit, before, house):
            return
        newcomer = await load(unit, before, house, None, await present_fingerprint(before))
    except Superseded:
        return
    except StartError as error:
        unit.trouble = f"{reason}; and the old one did not come back: {error}"
        house.router.give_up(unit.name, unit.trouble)
        return
    assign(unit, before, newcomer, house, None)


async def _comes_back(unit: Unit, before: Target, house: House) -> bool:
    """Does the generation that still drains serve again? Raises Superseded."""
    retired = unit.returnable(before)
    if retired is None:
        return False
    try:
        (await take_back(unit, before, house, None, retired)).commit()
    except (StartError, UpdateError) as error:
        _log.warning("not_taken_back", model=unit.name, generation=retired.generation.number, error=str(error))
        return False
    return True


def roll_back(unit: Unit, parked: Retired, house: House) -> None:
    """The inverse of a switch, while the new generation is on probation: one assignment, no load."""
    bad, probation, change = unit.serving, unit.probation, unit.open_change
    if bad is None or probation is None or change is None:
        raise ValueError(f"{unit.name} is not on probation")
    reason = probation.failed or f"generation {bad.number} died: {bad.reason}"
    _log.error("rolled_back", model=unit.name, generation=bad.number, reason=reason, tail=bad.stderr_tail)
    try:
        with switching(house, change.record, parked.generation):
            unit.probation = None
            unit.retired.remove(parked)
            change.then = take_over(unit, parked.target, parked.generation, house)
            unit.rolled_back = f"RolledBack: {reason}; generation {parked.generation.number} serves again"
            parked.returned()
    finally:
        if unit.serving is parked.generation:
            change.rolled_back(reason)
