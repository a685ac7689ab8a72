"""When a load may begin: where there is room, or room can be made, and as many at a time as are allowed.

Every wait on the way looks whether the load is still wanted: a newer change that needs the same
generation lets it go on, one that needs another ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from halogend.config.codes import Code
from halogend.control.house import House
from halogend.control.plan import mib
from halogend.control.receipts import ModelRecord
from halogend.control.shrink import grow_again, may_shrink, room_of, shrink, take_room
from halogend.control.startup import StartError
from halogend.control.target import Target
from halogend.control.unit import Unit
from halogend.control.waits import first_of
from halogend.wire.failure import Failure

_ROOM_PATIENCE_S = 5.0  # for a live change of another model that gives memory back
_LOOK_S = 1.0
T = TypeVar("T")


class Superseded(Exception):  # noqa: N818  no fault of anybody: a newer document wants something else
    """The load is no longer wanted; its processes are gone."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The replicas to load, all or some of a target's. `join`: they are for a generation that serves without them, and
    not wanted any more where a newer change has no place for one of them."""

    target: Target
    parts: Sequence[Target]
    join: bool = False

    @property
    def indispensable(self) -> Sequence[Target]:
        return self.parts if self.join else ()


@contextlib.asynccontextmanager
async def admitted(unit: Unit, wanted: Wanted, house: House, record: ModelRecord | None) -> AsyncIterator[list[int]]:
    """As many loads at a time as are allowed, and only where it fits: KV bytes of each replica to start with. Room
    is waited for outside the slot, so that a slow drain holds nobody else up."""
    target = wanted.target
    while True:
        await unless_superseded(unit, target, _until_room(unit, wanted, house), wanted.indispensable)
        await unless_superseded(unit, target, house.loads.acquire(), wanted.indispensable)
        if house.misfit(wanted.parts) is None or may_shrink(unit, target, house):
            break
        house.loads.release()
    try:
        async with _room(unit, wanted, house, record):
            yield house.grants(wanted.parts, [room_of(unit)])
    finally:
        house.loads.release()


async def unless_superseded(unit: Unit, target: Target, wait: Awaitable[T], parts: Sequence[Target] = ()) -> T:
    """The result of `wait`; raises Superseded as soon as a newer change needs another generation, or has no place for
    one of `parts`. A coroutine is cancelled then, a task of somebody else goes on."""
    owned = asyncio.iscoroutine(wait)
    task = asyncio.ensure_future(wait)
    try:
        while not task.done():
            if unit.is_superseded(target, parts):
                raise Superseded
            await first_of(asyncio.wait([task]), unit.woken())
    finally:
        if owned:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return task.result()


@contextlib.asynccontextmanager
async def _room(unit: Unit, wanted: Wanted, house: House, record: ModelRecord | None) -> AsyncIterator[None]:
    """Where it is the old pool that gives it, it goes back there when the load fails. Another load may enter between
    the pool's last word and this one: then the old pool gives more."""
    if house.misfit(wanted.parts) is None:
        yield
        return
    try:
        while not house.fits(wanted.target, room_of(unit)):
            await unless_superseded(unit, wanted.target, shrink(unit, wanted.target, house, record))
        yield
    except Exception:  # whatever it was, the old generation serves on and has its pool again
        take_room(unit, house)
        await grow_again(unit, house, record)
        raise
    finally:
        take_room(unit, house)


async def _until_room(unit: Unit, wanted: Wanted, house: House) -> None:
    """Waits while memory is on its way back, or another load goes first. Raises StartError when memory
    will not come."""
    deadline = time.monotonic() + _ROOM_PATIENCE_S
    while (misfit := _missing(unit, wanted, house)) is not None or house.goes_after_others(unit):
        left_s = deadline - time.monotonic()
        if misfit is not None and left_s <= 0 and not (house.any_gives_back() or house.others_fit(unit)):
            part, taken = misfit
            message = f"{unit.name} does not fit: {mib(taken)} of {mib(part.budget_bytes)} are taken"
            raise StartError(Failure(code=Code.OVERLAP_DOES_NOT_FIT, message=message))
        patience_s = _LOOK_S if misfit is None else max(left_s, _LOOK_S)
        await first_of(house.ledger.changed.wait(), asyncio.sleep(patience_s))


def _missing(unit: Unit, wanted: Wanted, house: House) -> tuple[Target, int] | None:
    """The replica that has no room, and what is taken there. An old pool is left alone while memory comes back by
    itself."""
    misfit = house.misfit(wanted.parts)
    if misfit is not None and not house.any_gives_back() and may_shrink(unit, wanted.target, house):
        return None
    return misfit
