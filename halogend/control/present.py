"""What runs now, as values for a plan: which generations there are, and which requests keep them."""

from __future__ import annotations

import time

from halogend.control.answer import Answer
from halogend.control.forecast import Present, Returnable
from halogend.control.generation import Generation
from halogend.control.house import House, ledger_name
from halogend.control.plan import Plan
from halogend.control.plan_report import Drain
from halogend.control.receipts import ModelAction
from halogend.control.reclaim import drain_limit_s
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
    serving = unit.alive()
    dead = [] if unit.serving is None or serving is not None else [unit.serving]
    return Present(
        active=unit.active,
        serving=None if serving is None else ledger_name(serving),
        reserve_bytes=0 if serving is None else serving.spec.engine.pool_reserve_bytes,
        coming=unit.coming,
        loading=None if unit.loading is None else ledger_name(unit.loading),
        draining=tuple(ledger_name(each) for each in (*dead, *(one.generation for one in unit.retired))),
        returnable=tuple(
            Returnable(ledger_name(each.generation), each.target, each.generation.spec.engine.pool_reserve_bytes)
            for each in unit.retired
            if each.may_return
        ),
    )


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
