"""What runs now, as values for a plan: which generations there are, and which requests keep them."""

from __future__ import annotations

import time
from dataclasses import replace

from halogend.control.answer import Answer
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.plan import Plan
from halogend.control.plan_report import Drain
from halogend.control.present import Present, Returnable
from halogend.control.receipts import ModelAction
from halogend.control.reclaim import drain_limit_s
from halogend.control.replica import Replica
from halogend.control.target import Target
from halogend.control.unit import Unit


def presence(house: House) -> dict[str, Present]:
    """By model. A generation that died is on its way out."""
    return {name: _present(unit) for name, unit in house.units.items()}


def drains(plan: Plan, house: House) -> dict[str, Drain]:
    """By model, where the plan ends a generation that serves."""
    found = {}
    for each in plan.models:
        unit = house.units.get(each.model)
        serving = None if unit is None else unit.alive()
        if unit is not None and serving is not None and each.action in (ModelAction.REPLACE, ModelAction.REMOVE):
            limit_s = drain_limit_s(unit, house)
            stays = _that_stay(serving, each.action)
            full_s = house.router.request_p99_s(each.model)
            found[each.model] = Drain(limit_s, len(stays), sum(_may_outlive(age_s, full_s, limit_s) for age_s in stays))
    return found


def _present(unit: Unit) -> Present:
    """A replica for each device where something serves or loads."""
    serving = unit.alive()
    served, loading = _by_device(serving), _loading(unit)
    devices = list(served | loading) or list(_by_device(unit.retired[-1].generation if unit.retired else None)) or [""]
    parts = [
        Present(
            active=_seen(unit.active, device),
            serving=served[device].name if device in served else None,
            reserve_bytes=served[device].spec.engine.pool_reserve_bytes if device in served else 0,
            surplus_bytes=served[device].memory.surplus_bytes if device in served else 0,
            coming=_seen(unit.coming, device) if device in loading else None,
            loading=loading[device].name if device in loading else None,
            draining=tuple(each.name for each in _going(unit) if _stands_with(each, devices) == device),
            returnable=tuple(each for where, each in _returnable(unit) if _stands_with(where, devices) == device),
            device=device,
        )
        for device in devices
    ]
    return replace(parts[0], leaving=_leaving(unit, serving), others=tuple(parts[1:]))


def _loading(unit: Unit) -> dict[str, Replica]:
    """Of a generation that comes, and those that are to join one."""
    joining = [each for one in (unit.loading, unit.serving) if one is not None for each in one.coming]
    return _by_device(unit.loading) | {each.spec.device: each for each in joining}


def _by_device(generation: Generation | None) -> dict[str, Replica]:
    return {} if generation is None else {each.spec.device: each for each in generation.replicas}


def _going(unit: Unit) -> list[Replica]:
    """Replicas on their way out: of a dead generation, of old ones, and those that one does without."""
    alive = unit.alive()
    dead = [] if unit.serving is None or alive is not None else [unit.serving]
    leaving = [] if alive is None else alive.leaving
    return [*(each for old in (*dead, *(one.generation for one in unit.retired)) for each in old.everybody), *leaving]


def _returnable(unit: Unit) -> list[tuple[Replica, Returnable]]:
    return [
        (each, replace(_may_return(each, old.target), leaving=_leaving(unit, old.generation)))
        for old in unit.retired
        if old.may_return
        for each in old.generation.replicas
    ]


def _leaving(unit: Unit, generation: Generation | None) -> tuple[Returnable, ...]:
    """Replicas that this generation was to go on without, and can take back."""
    found = [each for each in unit.leavers if each.generation is generation and each.may_return]
    return tuple(_may_return(each.replica, each.part.alone) for each in found if each.part is not None)


def _may_return(replica: Replica, target: Target) -> Returnable:
    seen = target.seen_from(replica.spec.device)
    return Returnable(replica.name, seen, replica.spec.engine.pool_reserve_bytes, replica.memory.surplus_bytes)


def _seen(target: Target | None, device: str) -> Target | None:
    return None if target is None else target.seen_from(device)


def _stands_with(replica: Replica, devices: list[str]) -> str:
    """With what is on its device, else with the first."""
    return replica.spec.device if replica.spec.device in devices else devices[0]


def _that_stay(generation: Generation, action: ModelAction) -> list[float]:
    """Ages in seconds. A request without a token goes over to the generation that replaces this one."""
    answers = [each for each in generation.leases if isinstance(each, Answer)]
    stay = [each for each in answers if each.has_token or action is ModelAction.REMOVE]
    now = time.monotonic()
    return [now - each.began for each in stay]


def _may_outlive(age_s: float, full_s: float, limit_s: float) -> bool:
    """`full_s` is what all but one in a hundred took, 0 where that is not known. One that has run longer
    may run for ever."""
    return full_s <= age_s or full_s - age_s > limit_s
