"""What a reload does to one model: load, switch, reclaim.

`converge` is read from top to bottom. Every step is undone where it failed: a load ends its own
processes, a replace loads the old spec again. Owns the order of the steps; must never decide what
is wanted (`plan` does) or which request goes where (`router` does).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import msgspec
import structlog

from halogend.config.codes import Code
from halogend.control.generation import Generation, UpdateError
from halogend.control.house import House, ledger_name
from halogend.control.plan import Target, mib, with_pool
from halogend.control.receipts import ModelRecord
from halogend.control.startup import StartError
from halogend.control.unit import Change, Unit, first_of
from halogend.wire.messages import EngineSpec, Failure, PrepareEngine, PrepareText

_log = structlog.get_logger()
_DRAIN_LEAST_S, _DRAIN_MOST_S, _DRAIN_FACTOR = 30.0, 900.0, 1.5
_ROOM_LOOK_S = 5.0
_TELL_EVERY_S = 1.0


class Superseded(Exception):  # noqa: N818  no fault of anybody: a newer document wants something else
    """The load is no longer wanted; its processes are gone."""


async def converge(unit: Unit, change: Change, house: House) -> None:
    """Brings one model to `change.target`. Whatever fails ends in the change's record, with the
    state that was before; reclaim goes on in the background and closes the change."""
    target, before = change.target, unit.active
    try:
        if target is None:
            old = _withdraw(unit, house)
        elif unit.serves(target):
            await _update(unit, target, house, change.record)
            old = None
        else:
            house.router.open(unit.name, target.settings)
            await _until_reclaimed(unit)
            if target.replaces and unit.serving is not None:
                await _hold_and_reclaim(unit, house, change.record)
            newcomer = await load(unit, target, house, change.record)
            old = await switch(unit, target, newcomer, house, change.record)
    except Superseded:
        change.closed()
        return
    except (StartError, UpdateError) as error:
        _log.error("change_failed", model=unit.name, error=str(error))
        change.failed(str(error))
        await _restore(unit, before, house, str(error))
        change.closed()
        return
    change.served()
    unit.reclaiming = asyncio.create_task(_reclaim_and_close(unit, old, house, change))


# --- load ---------------------------------------------------------------------------------------


async def load(unit: Unit, target: Target, house: House, record: ModelRecord | None) -> Generation:
    """A generation that is ready, beside whatever serves. Raises StartError, and Superseded when a
    newer change needs another generation; in both cases its processes are gone."""
    async with house.loads, house.step(record, "load") as step:
        kv_bytes = await _room(unit, target, house)
        engine = _with_threads(target, kv_bytes, house)
        spec = replace(target.spec, engine=engine)
        generation = unit.loading = house.make(spec, unit.next_number())
        holding = replace(target.holding, kv_bytes=kv_bytes)
        house.enter(generation, holding)
        house.state(generation, "loading")
        step.detail.update(generation=generation.number, expected_bytes=holding.total_bytes)
        try:
            await _start_unless_superseded(unit, target, generation)
        except BaseException:
            house.leave(generation)
            raise
        finally:
            unit.loading = None
        step.detail.update(measured_bytes=generation.pss_bytes())
        return generation


def _with_threads(target: Target, kv_bytes: int, house: House) -> EngineSpec:
    """The engine as it starts now: its part of the cores, and what there is room for."""
    threads = house.cores.share(newcomers=1)
    return msgspec.structs.replace(target.spec.engine, threads=threads, limits=with_pool(target, kv_bytes))


async def _room(unit: Unit, target: Target, house: House) -> int:
    """KV bytes to start with, once there is room; memory that is being given back is waited for."""
    while not house.fits(target):
        if not house.any_reclaiming():
            taken = house.ledger.taken_bytes(target.holding.device)
            message = f"{unit.name} does not fit: {mib(taken)} of {mib(target.budget_bytes)} are taken"
            raise StartError(Failure(code=Code.OVERLAP_DOES_NOT_FIT, message=message))
        await first_of(house.ledger.changed.wait(), asyncio.sleep(_ROOM_LOOK_S))
    return house.grant(target)


async def _start_unless_superseded(unit: Unit, target: Target, generation: Generation) -> None:
    start = asyncio.create_task(generation.start())
    telling = asyncio.create_task(_tell_progress(generation))
    try:
        while not start.done():
            await first_of(asyncio.wait([start]), unit.until_wanted())
            if unit.newer is not None and not start.done():
                wanted = unit.newer.target
                if wanted is None or not target.same_generation(wanted):
                    raise Superseded
                await asyncio.wait([start])
    finally:
        telling.cancel()
        if not start.done():
            start.cancel()
        await asyncio.wait([start, telling])
    start.result()


async def _tell_progress(generation: Generation) -> None:
    """One log line a second while it loads: bytes, rate, time left."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(_TELL_EVERY_S)
        pulse = generation.pulses().get("engine")
        if pulse is None or not pulse.total:
            _log.info("model_starting", model=generation.model, generation=generation.number)
            began = time.monotonic()
            continue
        rate = pulse.done / max(1e-3, time.monotonic() - began)
        left_s = round((pulse.total - pulse.done) / rate) if rate else None
        _log.info(
            "model_loading",
            model=generation.model,
            generation=generation.number,
            stage=pulse.stage,
            loaded=f"{mib(pulse.done)} of {mib(pulse.total)}",
            rate=f"{mib(int(rate))}/s",
            left_s=left_s,
        )


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
    kv_bytes = house.grant(target, besides=name)
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
        await serving.prepare(text, engine)
        serving.commit(text, engine)
        house.router.set_settings(unit.name, target.settings)
        house.enter(serving, replace(target.holding, kv_bytes=kv_bytes))
        unit.active = target


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
    unit.is_gone = True
    old, unit.serving, unit.active = unit.serving, None, None
    house.router.close(unit.name)
    return old


async def _hold_and_reclaim(unit: Unit, house: House, record: ModelRecord) -> None:
    """Replace: requests wait in the router while the old generation drains and ends."""
    old, unit.serving = house.router.hold(unit.name), None
    if old is not None:
        await reclaim(unit, old, house, record)


async def _until_reclaimed(unit: Unit) -> None:
    """At most one old generation of a model exists; a dead one does not count."""
    if unit.reclaiming is None:
        return
    died = None if unit.serving is None else unit.serving.died
    await first_of(asyncio.wait([unit.reclaiming]), *([died.wait()] if died else []))


async def _reclaim_and_close(unit: Unit, old: Generation | None, house: House, change: Change) -> None:
    if old is not None:
        await reclaim(unit, old, house, change.record)
    if unit.is_gone and house.units.get(unit.name) is unit:
        house.metrics.forget(unit.name)
    change.closed()


async def reclaim(unit: Unit, old: Generation, house: House, record: ModelRecord | None) -> None:
    """Drains the old generation up to the deadline, ends what is left honestly, and takes its
    memory back: done when both processes have exited."""
    unit.draining = old
    house.state(old, "draining")
    async with house.step(record, "drain") as step:
        limit_s = drain_limit_s(unit, house)
        step.detail.update(generation=old.number, limit_s=limit_s)
        try:
            async with asyncio.timeout(limit_s):
                await old.drained()
        except TimeoutError:
            left = list(old.leases)
            step.detail.update(ended=len(left))
            for lease in left:
                lease.end("draining", f"{unit.name} was replaced, and its drain_timeout_s of {limit_s:g} s is over")
    async with house.step(record, "reclaim") as step:
        statuses = await old.stop()
        expected = house.ledger.holding(ledger_name(old))
        house.leave(old)
        step.detail.update(
            exit_statuses=statuses,
            expected_bytes=0 if expected is None else expected.total_bytes,
            returned_bytes=old.pss_at_stop_bytes,
        )
    unit.draining = None
    house.router.forget_old_names(unit.name)
    for each in house.units.values():
        each.poke()
    _log.info("generation_reclaimed", model=unit.name, generation=old.number, returned_bytes=old.pss_at_stop_bytes)


def drain_limit_s(unit: Unit, house: House) -> float:
    """`auto`: 1.5 times the p99 of a full request, between 30 and 900 s."""
    stated = "auto" if unit.active is None else unit.active.config.reload.drain_timeout_s
    if stated != "auto":
        return float(stated)
    return min(_DRAIN_MOST_S, max(_DRAIN_LEAST_S, _DRAIN_FACTOR * house.router.request_p99_s(unit.name)))


async def _restore(unit: Unit, before: Target | None, house: House, reason: str) -> None:
    """The inverse of a replace: the old spec is loaded again. Where there was none, or it fails as
    well, requests are told why."""
    if unit.serving is not None:
        return
    unit.trouble = reason
    if before is None:
        house.router.give_up(unit.name, reason)
        return
    try:
        newcomer = await load(unit, before, house, None)
    except Superseded:
        return
    except StartError as error:
        unit.trouble = f"{reason}; and the old one did not come back: {error}"
        house.router.give_up(unit.name, unit.trouble)
        return
    await switch(unit, before, newcomer, house, None)
