"""What a model has yet to load, and whether memory of it comes free: what other models' loads and pools reckon with.

Reads one unit and changes nothing.
"""

from __future__ import annotations

from halogend.control.generation import Generation
from halogend.control.retired import Retired, Stage
from halogend.control.target import Target
from halogend.control.unit import Unit


def awaited(unit: Unit) -> list[Target]:
    """Replicas that are wanted and have to be loaded, each before its load begins."""
    target = None if unit.wanted is None else unit.wanted.target
    if target is None:
        return []
    into = _into(unit, target)
    there = [] if into is None else [*into.replicas, *into.coming]
    if len(there) == len(target.parts) == 1:  # one alone stays whatever its device is called
        return []
    taken = [each.replica for each in unit.leavers if each.generation is into and each.stage is Stage.TAKEN]
    devices = {each.spec.device for each in (*there, *taken)}
    return [part for part in target.parts if part.device not in devices and not unit.leaver_for(part, into)]


def _into(unit: Unit, target: Target) -> Generation | None:
    """The generation that the target's replicas are of: one that serves, drains and is taken back, or loads."""
    if unit.serves(target):
        return unit.serving
    retired = _comes_back(unit, target)
    return unit.loading if retired is None else retired.generation


def _comes_back(unit: Unit, target: Target) -> Retired | None:
    """What may serve again for this target, or is made ready for it already."""
    taken = (each for each in reversed(unit.retired) if each.stage is Stage.TAKEN)
    return unit.returnable(target) or next((each for each in taken if each.target.same_generation(target)), None)


def about_to_load(unit: Unit) -> Target | None:
    """What a model that serves needs another generation for, before the load begins."""
    target = None if unit.wanted is None else unit.wanted.target
    if target is None or unit.loading is not None or unit.alive() is None or unit.serves(target):
        return None
    return None if _comes_back(unit, target) else target


def gives_back(unit: Unit) -> bool:
    """Will memory of it come free, whatever others do? What a switch will retire counts while its load runs;
    what waits for the other models of an atomic change, or will stand by for a probation, does not."""
    ends = any(each.stage in (Stage.DRAINING, Stage.ENDING) for each in (*unit.retired, *unit.leavers))
    return ends or (unit.serving is not None and _will_retire(unit))


def _will_retire(unit: Unit) -> bool:
    """Is another generation loaded, after which what serves goes?"""
    change = unit.under_way
    if unit.loading is None or change is None or change.target is None or change.barrier is not None:
        return False
    return change.target.config.probation is None
