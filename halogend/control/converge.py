"""What a reload does to one model: load, switch, reclaim.

`converge` is read from top to bottom. Every step is undone where it failed: a load ends its own
processes, a replace loads the old spec again. Owns the order of the steps; must never decide what
is wanted (`plan` does) or which request goes where (`router` does).
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from halogend.control.generation import Generation
from halogend.control.house import House, ledger_name
from halogend.control.load import Superseded, load, present_fingerprint, unless_superseded
from halogend.control.receipts import ModelRecord
from halogend.control.reclaim import drain_limit_s, reclaim
from halogend.control.replica import UpdateError
from halogend.control.startup import StartError
from halogend.control.target import Target, with_pool
from halogend.control.unit import Change, Unit, first_of
from halogend.wire.messages import PrepareEngine, PrepareText

_log = structlog.get_logger()


async def converge(unit: Unit, change: Change, house: House) -> None:
    """Brings one model to `change.target`. Whatever fails ends in the change's record, with the
    state that was before; reclaim goes on in the background and closes the change."""
    target, before = change.target, unit.active
    old, limit_s = None, drain_limit_s(unit, house)
    try:
        if target is None:
            old = _withdraw(unit, house)
        elif unit.serves(target):
            await _update(unit, target, house, change.record)
        else:
            house.router.open(unit.name, target.settings)
            await _until_reclaimed(unit, target)
            if target.replaces and unit.serving is not None:
                await _hold_and_reclaim(unit, target, house, change.record)
            newcomer = await load(unit, target, house, change.record, target.inputs.checkpoint[1])
            old = await switch(unit, target, newcomer, house, change.record)
            unit.deaths.clear()
    except Superseded:
        change.closed()
        return
    except (StartError, UpdateError) as error:
        _log.error("change_failed", model=unit.name, error=str(error))
        change.failed(str(error))
        await restore(unit, before, house, str(error))
        change.closed()
        return
    unit.reclaim(_reclaim_and_close(unit, old, house, change, limit_s))
    change.served()


# --- switch -------------------------------------------------------------------------------------


async def switch(
    unit: Unit, target: Target, newcomer: Generation, house: House, record: ModelRecord | None
) -> Generation | None:
    """One assignment in the router. Returns the generation that served before."""
    async with house.step(record, "switch") as step:
        old = house.router.switch(unit.name, newcomer, target.settings)
        unit.serving, unit.active = newcomer, target
        unit.trouble = unit.degraded = None
        house.cores.join(newcomer)
        house.state(newcomer, "serving")
        house.metrics.engine_up(unit.name, newcomer.number, up=True)
        step.detail.update(generation=newcomer.number)
    _log.info("generation_serving", model=unit.name, generation=newcomer.number, path=target.config.model)
    return old


async def _update(unit: Unit, target: Target, house: House, record: ModelRecord | None) -> None:
    """Live fields in place: every worker prepares, then all commit. Raises UpdateError."""
    serving, active = unit.serving, unit.active
    if serving is None or active is None:
        raise UpdateError(f"{unit.name} does not serve")
    name = ledger_name(serving)
    kv_bytes = min(house.grant(target, besides=name), serving.spec.engine.pool_reserve_bytes)
    async with house.step(record, "update"):
        limits = with_pool(target, kv_bytes)
        text = engine = None
        if target.spec.text != active.spec.text:
            text = PrepareText(
                update=serving.next_update(),
                limits=target.spec.text.limits,
                chat_template=target.spec.text.chat_template,
            )
        if limits != serving.engine_limits:
            engine = PrepareEngine(update=serving.next_update(), limits=limits)
        now = replace(target.holding, kv_bytes=kv_bytes)
        before = house.ledger.holding(name) or now
        house.enter(serving, before.covering(now))  # what it grows by is nobody else's from here on
        try:
            await serving.prepare(text, engine)
        except UpdateError:
            house.enter(serving, before)
            raise
        serving.commit(text, engine)
        house.router.set_settings(unit.name, target.settings)
        house.enter(serving, now)
        unit.active = target
        if now.total_bytes < before.total_bytes:
            house.tell_of_room(besides=unit)


async def grow(unit: Unit, house: House) -> None:
    """The pool takes what came free, up to its target."""
    if unit.active is None or not unit.serves(unit.active):
        return
    try:
        await _update(unit, unit.active, house, None)
    except UpdateError as error:
        _log.warning("pool_not_grown", model=unit.name, error=str(error))


# --- reclaim --------------------------------------------------------------------------------------


def _withdraw(unit: Unit, house: House) -> Generation | None:
    """The model's names are unknown from now on."""
    old, unit.serving, unit.active, unit.trouble = unit.serving, None, None, None
    house.router.close(unit.name)
    return old


async def _hold_and_reclaim(unit: Unit, target: Target, house: House, record: ModelRecord) -> None:
    """Replace: requests wait in the router while the old generation drains and ends."""
    limit_s = drain_limit_s(unit, house)
    old, unit.serving = house.router.hold(unit.name), None
    if old is not None:
        task = unit.reclaim(reclaim(unit, old, house, record, limit_s))
        await unless_superseded(unit, target, task)


async def _until_reclaimed(unit: Unit, target: Target) -> None:
    """At most one old generation of a model exists; a dead one does not count."""
    while unit.reclaims and (serving := unit.alive()) is not None:
        await unless_superseded(unit, target, first_of(unit.woken(), serving.died.wait()))


async def _reclaim_and_close(unit: Unit, old: Generation | None, house: House, change: Change, limit_s: float) -> None:
    try:
        if old is not None:
            await reclaim(unit, old, house, change.record, limit_s)
        if not unit.is_wanted and unit.newer is None:
            house.metrics.forget(unit.name)
    finally:
        change.closed()


async def restore(unit: Unit, before: Target | None, house: House, reason: str) -> None:
    """The inverse of a replace: the old spec is loaded again. Where there was none, or it fails as
    well, requests are told why."""
    if unit.serving is not None:
        return
    unit.trouble = reason
    if before is None:
        house.router.give_up(unit.name, reason)
        return
    try:
        newcomer = await load(unit, before, house, None, await present_fingerprint(before))
    except Superseded:
        return
    except StartError as error:
        unit.trouble = f"{reason}; and the old one did not come back: {error}"
        house.router.give_up(unit.name, unit.trouble)
        return
    await switch(unit, before, newcomer, house, None)
