"""Room for a newcomer out of the old generation's pool; and back into it where nothing comes of the newcomer.

Owns one step and its inverse: `shrink` takes what is missing, never so much that what requests hold now and one
full request beside would not fit; `grow_again` gives back what nobody else took. When that is done is the load's
business.
"""

from __future__ import annotations

import asyncio

import structlog

from halogend.config.codes import Code
from halogend.control.adjust import prepare
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.ledger import Holding
from halogend.control.plan import mib
from halogend.control.receipts import ModelRecord
from halogend.control.replica_changes import UpdateError
from halogend.control.startup import StartError
from halogend.control.target import Target, Way
from halogend.control.unit import Unit
from halogend.control.waits import first_of
from halogend.wire.failure import Failure

SHRINK_LIMIT_S = 60.0
"""For requests to end that hold more than the old pool may keep."""

_log = structlog.get_logger()
_LOOK_S = 0.2  # an engine tells once a second what its requests hold


def may_shrink(unit: Unit, target: Target, house: House) -> bool:
    """Could the old pool give what is missing, once its requests have ended?"""
    serving, active = unit.alive(), unit.active
    if target.way is not Way.SHRINK or serving is None or active is None or len(serving.replicas) != 1:
        return False
    misfit = house.misfit(target.parts, room_of(unit))
    if misfit is not None and misfit[0].device != target.device:
        return False  # what is missing of the host no pool on an accelerator has
    return _left(unit, serving, target, house) >= active.floor_bytes


async def shrink(unit: Unit, target: Target, house: House, record: ModelRecord | None) -> None:
    """Returns when there is room for `target`. Raises StartError where that cannot be, or not in time, and
    UpdateError where the engine refuses."""
    over = asyncio.Event()
    async with house.step(record, "shrink") as step:
        step.detail.update(limit_s=SHRINK_LIMIT_S)
        try:
            async with asyncio.timeout(SHRINK_LIMIT_S):
                while not house.fits(target, room_of(unit)):
                    sizes = await _give(unit, target, house, over)
                    if sizes is not None:
                        step.detail.update(from_bytes=step.detail.get("from_bytes", sizes[0]), to_bytes=sizes[1])
                    if not house.fits(target, room_of(unit)):
                        await first_of(house.ledger.changed.wait(), asyncio.sleep(_LOOK_S))
        except TimeoutError as error:
            held = f"requests of the old one hold more of its pool than it may keep, {SHRINK_LIMIT_S:g} s long"
            raise _does_not_fit(target, held) from error
        finally:
            over.set()


def room_of(unit: Unit) -> str:
    """The name in the ledger of what the old pool gave: nobody else's, until the newcomer has entered its own."""
    return f"{unit.name}#room"


def take_room(unit: Unit, house: House) -> None:
    """What was kept for the newcomer is its own now, or nobody's."""
    if house.ledger.holding(room_of(unit)) is not None:
        house.ledger.leave(room_of(unit))


async def grow_again(unit: Unit, house: House, record: ModelRecord | None) -> None:
    """The inverse."""
    serving, active = unit.alive(), unit.active
    if serving is None or active is None:
        return
    async with house.step(record, "grow"):
        try:
            (await prepare(serving, active, active, house)).commit()
        except UpdateError as error:
            unit.refused_to_grow()
            _log.warning("pool_not_grown", model=unit.name, error=str(error))


async def _give(unit: Unit, target: Target, house: House, over: asyncio.Event) -> tuple[int, int] | None:
    """The pool's bytes before and after; None where requests hold too much of it now, or it is under way. What is
    confirmed when it is `over` is kept for nobody: no newcomer waits for it."""
    serving, active = unit.alive(), unit.active
    if serving is None or active is None:
        raise _does_not_fit(target, "the old one died while it gave memory back")
    old_bytes = _held(serving, house).kv_bytes
    if old_bytes > serving.engine_limits.pool_bytes:
        return None  # it was told, and has not confirmed it yet
    kv_bytes = _left(unit, serving, target, house)
    if kv_bytes < active.floor_bytes:
        raise _does_not_fit(target, f"the old pool keeps one full request ({mib(active.floor_bytes)})")
    if kv_bytes < _referenced_bytes(serving) + active.floor_bytes:
        return None
    adjustment = await prepare(serving, active, active, house, most_kv_bytes=kv_bytes)

    def settling() -> None:
        if not over.is_set():
            _keep(unit, old_bytes - kv_bytes, target, house)

    adjustment.commit(settling)
    _log.info("pool_shrunk", model=unit.name, generation=serving.number, pool_bytes=kv_bytes)
    return old_bytes, kv_bytes


def _keep(unit: Unit, more_bytes: int, target: Target, house: House) -> None:
    """For the newcomer, beside what it has given before."""
    before = house.ledger.holding(room_of(unit))
    kv_bytes = more_bytes + (0 if before is None else before.kv_bytes)
    room = Holding(target.device, weights_bytes=0, working_bytes=0, kv_bytes=kv_bytes)
    house.ledger.enter(room_of(unit), room)


def _left(unit: Unit, serving: Generation, target: Target, house: House) -> int:
    """Bytes the old pool would keep. What it gave before is there for the newcomer."""
    return target.left_to(_held(serving, house), house.taken(target, room_of(unit)))


def _held(serving: Generation, house: House) -> Holding:
    (replica,) = serving.replicas  # several do not give way to a newcomer
    held = house.ledger.holding(replica.name)
    if held is None:
        raise ValueError(f"{replica.name} is not in the ledger")
    return held


def _referenced_bytes(serving: Generation) -> int:
    """What requests hold of the pool, as the engine told last."""
    return 0 if serving.stats is None else serving.stats.blocks_used * serving.ready.engine.block_bytes


def _does_not_fit(target: Target, why: str) -> StartError:
    message = f"{target.name} does not fit beside the old one, and {why}"
    return StartError(Failure(code=Code.OVERLAP_DOES_NOT_FIT, message=message))
