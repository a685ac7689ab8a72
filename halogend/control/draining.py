"""What an operator may ask of a model that drains: how long it takes, and to end it now."""

from __future__ import annotations

from typing import Any

import structlog

from halogend.control.drain import Drain
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.requests import RequestError
from halogend.control.unit import Unit

_log = structlog.get_logger()


class Draining:
    """The drains of one model as they were when it was asked. `end` gives their requests an honest end;
    what drains later is another's."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._drains: dict[Generation, Drain] = {each: unit.drains[each] for each in unit.draining}
        self._ended: dict[Generation, int] = {}

    def end(self, actor: str) -> None:
        for generation, drain in self._drains.items():
            self._ended[generation] = len(generation.leases)
            drain.end(actor)
            _log.warning(
                "drain_ended",
                model=self._unit.name,
                generation=generation.number,
                by=actor,
                requests=len(generation.leases),
            )

    async def closed(self) -> None:
        """Returns when none of them drains any more: its processes are gone, or it serves again."""
        while any(each in self._unit.draining for each in self._drains):
            await self._unit.woken()

    def view(self) -> dict[str, Any]:
        """JSON-ready. `state`: draining, serving (it was taken back) or gone; `ended`: requests that were cut."""
        return {"model": self._unit.name, "generations": [self._one(*each) for each in self._drains.items()]}

    def _one(self, generation: Generation, drain: Drain) -> dict[str, Any]:
        is_draining = generation in self._unit.draining
        serves = generation is self._unit.serving
        return {
            "generation": generation.number,
            "state": "draining" if is_draining else "serving" if serves else "gone",
            "requests": len(generation.leases),
            "limit_s": round(drain.limit_s, 1),
            "left_s": round(drain.left_s, 1) if is_draining else 0.0,
            "ended": 0 if serves else self._ended.get(generation, 0),  # taken back before it was heard
            "by": drain.by or None,
        }


def draining(house: House, name: str) -> Draining:
    """Raises RequestError: model_not_found, and nothing_drains where no old generation of it is left."""
    unit = house.units.get(name)
    if unit is None:
        known = ", ".join(f"`{each}`" for each in house.units) or "none"
        raise RequestError("model_not_found", f"There is no model `{name}` here. Known models: {known}.", param="name")
    if not unit.draining:
        raise RequestError("nothing_drains", f"Nothing of `{name}` drains: no old generation of it holds requests.")
    return Draining(unit)
