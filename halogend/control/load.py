"""The first step of a change: a new generation, ready, beside whatever serves.

Every wait on the way looks whether the load is still wanted: a newer change that needs the same
generation lets it go on, one that needs another ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from typing import TypeVar

import msgspec
import structlog

from halogend.checkpoint.errors import FILE_UNREADABLE, CheckpointError
from halogend.config.codes import Code
from halogend.control.aside import aside
from halogend.control.facts import checkpoint_fingerprint
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.plan import mib
from halogend.control.receipts import ModelRecord
from halogend.control.replica import ReplicaSpec
from halogend.control.shrink import grow_again, may_shrink, room_of, shrink, take_room
from halogend.control.startup import StartError
from halogend.control.target import Target, with_pool
from halogend.control.unit import Unit
from halogend.control.waits import first_of
from halogend.wire.messages import EngineSpec, Failure, TextSpec

_log = structlog.get_logger()
_ROOM_PATIENCE_S = 5.0  # for a live change of another model that gives memory back
_TELL_EVERY_S = 1.0
# Those who serve on these cores come first. A tokenizer at 19 would take minutes beside engines that are
# always busy, for two seconds of work.
ENGINE_NICENESS, TEXT_NICENESS = 19, 10
T = TypeVar("T")


class Superseded(Exception):  # noqa: N818  no fault of anybody: a newer document wants something else
    """The load is no longer wanted; its processes are gone."""


async def load(unit: Unit, target: Target, house: House, record: ModelRecord | None, fingerprint: str) -> Generation:
    """`fingerprint` is of the checkpoint that is meant. Raises StartError and Superseded; in both cases the
    processes are gone."""
    async with _slot(unit, target, house, record) as kv_bytes, house.step(record, "load") as step:
        engine, text = _engine(target, kv_bytes, house), _text(target, house)
        spec = replace(target.spec, engine=engine, text=text, fingerprint=fingerprint)
        generation = unit.loading = house.make([spec], unit.next_number())
        holding = replace(target.holding, kv_bytes=kv_bytes)
        take_room(unit, house)
        house.enter(generation, holding)
        house.state(generation, "loading")
        step.detail.update(generation=generation.number, expected_bytes=holding.total_bytes)
        telling = asyncio.create_task(_tell_progress(generation))
        try:
            await unless_superseded(unit, target, generation.start())
            await unless_superseded(unit, target, check_unchanged(spec))
            await generation.measure()
            generation.check_alive()
        except BaseException:
            await generation.stop()
            house.leave(generation)
            raise
        finally:
            unit.loading = None
            telling.cancel()
        step.detail.update(measured_bytes=generation.measured_bytes)
        return generation


async def present_fingerprint(target: Target) -> str:
    """Of the checkpoint that lies there now, for a spec that is loaded again; the planned one where there is
    none: the load will say what is wrong."""
    path, planned = target.inputs.checkpoint
    try:
        return await aside(lambda: checkpoint_fingerprint(path))
    except CheckpointError:
        return planned


async def unless_superseded(unit: Unit, target: Target, wait: Awaitable[T]) -> T:
    """The result of `wait`; raises Superseded as soon as a newer change needs another generation.
    A coroutine is cancelled then, a task of somebody else goes on."""
    owned = asyncio.iscoroutine(wait)
    task = asyncio.ensure_future(wait)
    try:
        while not task.done():
            if unit.is_superseded(target):
                raise Superseded
            await first_of(asyncio.wait([task]), unit.woken())
    finally:
        if owned:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return task.result()


@contextlib.asynccontextmanager
async def _slot(unit: Unit, target: Target, house: House, record: ModelRecord | None) -> AsyncIterator[int]:
    """As many loads at a time as are allowed, and only where it fits: KV bytes to start with. Room is waited
    for outside the slot, so that a slow drain holds nobody else up."""
    while True:
        await unless_superseded(unit, target, _until_room(unit, target, house))
        await unless_superseded(unit, target, house.loads.acquire())
        if house.fits(target) or may_shrink(unit, target, house):
            break
        house.loads.release()
    try:
        async with _room(unit, target, house, record):
            yield house.grant(target, besides=room_of(unit))
    finally:
        house.loads.release()


@contextlib.asynccontextmanager
async def _room(unit: Unit, target: Target, house: House, record: ModelRecord | None) -> AsyncIterator[None]:
    """Where it is the old pool that gives it, it goes back there when the load fails."""
    if house.fits(target):
        yield
        return
    try:
        await unless_superseded(unit, target, shrink(unit, target, house, record))
        yield
    except Exception:  # whatever it was, the old generation serves on and has its pool again
        take_room(unit, house)
        await grow_again(unit, house, record)
        raise
    finally:
        take_room(unit, house)


async def _until_room(unit: Unit, target: Target, house: House) -> None:
    """Waits while memory is on its way back, or another load goes first. Raises StartError when memory
    will not come."""
    deadline = time.monotonic() + _ROOM_PATIENCE_S
    while not (fits := _has_room(unit, target, house)) or house.goes_after_others(unit):
        left_s = deadline - time.monotonic()
        if not fits and left_s <= 0 and not house.any_draining():
            taken = house.taken(target)
            message = f"{unit.name} does not fit: {mib(taken)} of {mib(target.budget_bytes)} are taken"
            raise StartError(Failure(code=Code.OVERLAP_DOES_NOT_FIT, message=message))
        patience_s = _TELL_EVERY_S if fits else max(left_s, _TELL_EVERY_S)
        await first_of(house.ledger.changed.wait(), asyncio.sleep(patience_s))


def _has_room(unit: Unit, target: Target, house: House) -> bool:
    """An old pool is left alone while memory comes back by itself."""
    return house.fits(target) or (not house.any_draining() and may_shrink(unit, target, house))


def _engine(target: Target, kv_bytes: int, house: House) -> EngineSpec:
    """The engine as it starts now: its part of the cores, and what there is room for."""
    return msgspec.structs.replace(
        target.spec.engine,
        threads=house.cores.share(target.spec.cores),
        limits=with_pool(target, kv_bytes),
        loader_niceness=ENGINE_NICENESS if house.any_serving() else 0,
    )


def _text(target: Target, house: House) -> TextSpec:
    return msgspec.structs.replace(target.spec.text, loader_niceness=TEXT_NICENESS if house.any_serving() else 0)


async def check_unchanged(spec: ReplicaSpec) -> None:
    """The two processes read the files one after the other, and after they were planned with: what they
    read is one model only if nothing changed meanwhile. Raises StartError."""
    path = spec.engine.path
    try:
        now = await aside(lambda: checkpoint_fingerprint(path))
    except CheckpointError as error:
        raise StartError(Failure(code=error.code, message=error.message)) from error
    if now != spec.fingerprint:
        message = f"{path}: changed while it was loaded; reload again when it is whole"
        raise StartError(Failure(code=FILE_UNREADABLE, message=message))


async def _tell_progress(generation: Generation) -> None:
    """One log line a second while it loads: bytes, rate, time left."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(_TELL_EVERY_S)
        pulse = generation.pulses().get("engine")
        if pulse is None or not pulse.total:
            stage = "starting" if pulse is None else pulse.stage
            _log.info("model_loading", model=generation.model, generation=generation.number, stage=stage)
            began = time.monotonic()
            continue
        rate = pulse.done / max(1e-3, time.monotonic() - began)
        _log.info(
            "model_loading",
            model=generation.model,
            generation=generation.number,
            stage=pulse.stage,
            loaded=f"{mib(pulse.done)} of {mib(pulse.total)}",
            rate=f"{mib(int(rate))}/s",
            left_s=round((pulse.total - pulse.done) / rate) if rate else None,
        )
