"""What an operator may ask of a model that drains: how long it takes, and to end it now."""

from __future__ import annotations

from typing import Any

import structlog

from halogend.control.house import House
from halogend.control.requests import RequestError
from halogend.control.retired import Leaver, Leaving, Stage
from halogend.control.unit import Unit

_log = structlog.get_logger()


class Draining:
    """The drains of one model as they were when it was asked: of generations, and of replicas that what serves goes on
    without. `end` gives their requests an honest end; what drains later is another's."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._retired = [each for each in unit.retired if each.stage is not Stage.PARKED]
        self._leavers = unit.departing
        self._ended: dict[Leaving, int] = {}

    def end(self, actor: str) -> None:
        for retired in self._retired:
            self._end(retired, actor, generation=retired.generation.number)
        for leaver in self._leavers:
            self._end(leaver, actor, replica=leaver.replica.name)

    async def closed(self) -> None:
        """Returns when none of them drains any more: its processes are gone, or it serves again."""
        while any(self._is_draining(each) for each in (*self._retired, *self._leavers)):
            await self._unit.woken()

    def view(self) -> dict[str, Any]:
        """JSON-ready. `state`: draining, serving (it was taken back) or gone; `ended`: requests that were cut."""
        return {
            "model": self._unit.name,
            "generations": [{"generation": each.generation.number, **self._one(each)} for each in self._retired],
            "replicas": [{**_name(each), **self._one(each)} for each in self._leavers],
        }

    def _end(self, each: Leaving, actor: str, **which: object) -> None:
        self._ended[each] = requests = len(each.leases)
        each.drain.end(actor)
        _log.warning("drain_ended", model=self._unit.name, by=actor, requests=requests, **which)

    def _is_draining(self, each: Leaving) -> bool:
        return each.stage is not Stage.RETURNED and each in (*self._unit.retired, *self._unit.leavers)

    def _one(self, each: Leaving) -> dict[str, Any]:
        is_draining, serves = self._is_draining(each), each.stage is Stage.RETURNED
        return {
            "state": "draining" if is_draining else "serving" if serves else "gone",
            "requests": len(each.leases),
            "limit_s": round(each.drain.limit_s, 1),
            "left_s": round(each.drain.left_s, 1) if is_draining else 0.0,
            "ended": 0 if serves else self._ended.get(each, 0),  # taken back before it was heard
            "by": each.drain.by or None,
        }


def draining(house: House, name: str) -> Draining:
    """Raises RequestError: model_not_found, and nothing_drains where nothing old of it is left."""
    unit = house.units.get(name)
    if unit is None:
        known = ", ".join(f"`{each}`" for each in house.units) or "none"
        raise RequestError("model_not_found", f"There is no model `{name}` here. Known models: {known}.", param="name")
    if not unit.draining and not unit.departing:
        raise RequestError(
            "nothing_drains", f"Nothing of `{name}` drains: no old generation or replica of it holds requests."
        )
    return Draining(unit)


def _name(leaver: Leaver) -> dict[str, Any]:
    """What tells it from others."""
    replica = leaver.replica
    return {"replica": replica.name, "generation": leaver.generation.number, "device": replica.spec.device}
