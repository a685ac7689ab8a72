"""The first step of a change: a new generation, or further replicas of one, ready, beside whatever serves.

When it may begin is `admission`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

import msgspec
import structlog

from halogend.checkpoint.errors import FILE_UNREADABLE, CheckpointError
from halogend.control.admission import Wanted, admitted, unless_superseded
from halogend.control.aside import aside
from halogend.control.facts import checkpoint_fingerprint
from halogend.control.generation import Generation
from halogend.control.house import ENGINE_NICENESS, TEXT_NICENESS, House
from halogend.control.load_progress import progress_of
from halogend.control.pace import Took
from halogend.control.plan import mib
from halogend.control.receipts import ModelRecord, StepRecord
from halogend.control.replica import Replica
from halogend.control.replica_spec import ReplicaSpec
from halogend.control.shrink import take_room
from halogend.control.startup import StartError
from halogend.control.target import Target, with_pool
from halogend.control.unit import Unit
from halogend.control.waits import all_of
from halogend.wire.failure import Failure
from halogend.wire.specs import EngineSpec, TextSpec

_log = structlog.get_logger()
_TELL_EVERY_S = 1.0
_MOST_TOUCHED_BYTES = 256 << 20  # before a newcomer is ready: a load is not to wait long for it


async def load(unit: Unit, target: Target, house: House, record: ModelRecord | None, fingerprint: str) -> Generation:
    """`fingerprint` is of the checkpoint that is meant. Raises StartError and Superseded; in both cases the
    processes are gone."""
    wanted = Wanted(target, target.parts)
    async with admitted(unit, wanted, house, record) as pools:
        specs = _specs(unit, wanted.parts, pools, house, fingerprint)
        generation = unit.loading = house.make(specs, unit.next_number())
        take_room(unit, house)
        try:
            async with house.step(record, "load") as step:
                expected = _enter(generation.replicas, wanted.parts, pools, house)
                house.tell_of_room(besides=unit)  # pools that made way for it may take what it left
                house.state(generation, "loading")
                step.detail.update(generation=generation.number, expected_bytes=expected)
                _give_spare(generation.replicas, house, step)
                async with _timed(target, house), _telling(target.name, generation.replicas):
                    await unless_superseded(unit, target, generation.start())
                    await unless_superseded(unit, target, check_unchanged(generation.spec))
                await generation.measure()
                generation.check_alive()
                house.learn(generation.replicas, wanted.parts)
                step.detail.update(measured_bytes=generation.measured_bytes)
        except BaseException:
            await house.end_all(generation)
            raise
        finally:
            unit.loading = None
        return generation


async def load_replicas(
    unit: Unit, generation: Generation, wanted: Wanted, house: House, record: ModelRecord | None
) -> tuple[Replica, ...]:
    """Further replicas of a generation that serves; they take no request yet. Raises as `load` does."""
    fingerprint = generation.spec.fingerprint
    async with admitted(unit, wanted, house, record) as pools:
        specs = _specs(unit, wanted.parts, pools, house, fingerprint)
        replicas = generation.coming = tuple(generation.make(spec) for spec in specs)
        try:
            async with house.step(record, "load") as step:
                expected = _enter(replicas, wanted.parts, pools, house)
                step.detail.update(replicas=[replica.name for replica in replicas], expected_bytes=expected)
                _give_spare(replicas, house, step)
                async with _timed(wanted.parts[0], house), _telling(unit.name, replicas):
                    started, needed = all_of(replica.start() for replica in replicas), wanted.indispensable
                    await unless_superseded(unit, wanted.target, started, needed)
                    await unless_superseded(unit, wanted.target, check_unchanged(specs[0]), needed)
                for replica in replicas:
                    await replica.measure()
                    replica.check_alive()
                house.learn(replicas, wanted.parts)
                step.detail.update(measured_bytes=sum(replica.memory.measured_bytes for replica in replicas))
        except BaseException:
            await house.end(replicas)
            raise
        finally:
            generation.coming = ()
        return replicas


def _enter(replicas: Iterable[Replica], parts: Iterable[Target], pools: Iterable[int], house: House) -> int:
    """Their bytes are nobody else's from here on. Returns by how much what their devices hold grows: a file that is
    mapped there already is there."""
    expected = 0
    for replica, part, kv_bytes in zip(replicas, parts, pools, strict=True):
        holding = replace(part.holding, kv_bytes=kv_bytes)
        before = house.ledger.taken_bytes(holding.device)
        house.enter(replica, holding)
        expected += house.ledger.taken_bytes(holding.device) - before
    return expected


def _give_spare(replicas: Sequence[Replica], house: House, step: StepRecord) -> None:
    """An engine that was started ahead has imported what the others have yet to."""
    taker = house.spare.give_to(replicas)
    if taker is not None:
        step.detail.update(spare_worker=taker)


def _specs(
    unit: Unit, parts: Sequence[Target], pools: Iterable[int], house: House, fingerprint: str
) -> list[ReplicaSpec]:
    """Of replicas that are loaded side by side."""
    engines = [
        _with_pool_of(unit, _engine(part, parts, kv_bytes, house)) for part, kv_bytes in zip(parts, pools, strict=True)
    ]
    return [
        replace(part.spec, engine=engine, text=_text(part, house), fingerprint=fingerprint)
        for part, engine in zip(parts, engines, strict=True)
    ]


async def present_fingerprint(target: Target) -> str:
    """Of the checkpoint that lies there now, for a spec that is loaded again; the planned one where there is
    none: the load will say what is wrong."""
    path, planned = target.inputs.checkpoint
    try:
        return await aside(lambda: checkpoint_fingerprint(path))
    except CheckpointError:
        return planned


def _engine(target: Target, beside: Iterable[Target], kv_bytes: int, house: House) -> EngineSpec:
    """The engine as it starts now: its part of the cores, and what there is room for."""
    others = [each.spec.cores for each in beside if each is not target]
    return msgspec.structs.replace(
        target.spec.engine,
        threads=house.cores.share(target.spec.cores, others),
        limits=with_pool(target, kv_bytes),
        loader_niceness=house.niceness(ENGINE_NICENESS),
    )


def _with_pool_of(unit: Unit, engine: EngineSpec) -> EngineSpec:
    """Ready with as much of its pool's memory as the load needs that it takes over: what serves has that now. The first
    steps after the switch would fetch it from the system, and their streams wait."""
    serving = unit.alive()
    touched = 0 if serving is None else max((each.pool_touched_bytes for each in serving.replicas), default=0)
    wanted = min(touched, engine.limits.pool_bytes, _MOST_TOUCHED_BYTES)
    return msgspec.structs.replace(engine, pool_floor_bytes=max(engine.pool_floor_bytes, wanted))


def _text(target: Target, house: House) -> TextSpec:
    return msgspec.structs.replace(target.spec.text, loader_niceness=house.niceness(TEXT_NICENESS))


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


@contextlib.asynccontextmanager
async def _timed(target: Target, house: House) -> AsyncIterator[None]:
    """What it took says how long the next one takes, unless it failed."""
    began, in_company = time.monotonic(), house.has_company()
    yield
    seconds = time.monotonic() - began
    house.pace.note(Took(target.load.expected_s, seconds, in_company or house.loads.taken > 1))


@contextlib.asynccontextmanager
async def _telling(model: str, replicas: Sequence[Replica]) -> AsyncIterator[None]:
    """One log line a second meanwhile."""
    telling = asyncio.create_task(_tell_progress(model, replicas))
    try:
        yield
    finally:
        telling.cancel()


async def _tell_progress(model: str, replicas: Sequence[Replica]) -> None:
    """Bytes, rate, time left."""
    began, generation = time.monotonic(), replicas[0].generation
    while True:
        await asyncio.sleep(_TELL_EVERY_S)
        now = progress_of(replicas)
        if not now.total_bytes:
            _log.info("model_loading", model=model, generation=generation, stage=now.stage or "starting")
            began = time.monotonic()
            continue
        rate = now.done_bytes / max(1e-3, time.monotonic() - began)
        _log.info(
            "model_loading",
            model=model,
            generation=generation,
            stage=now.stage,
            loaded=f"{mib(now.done_bytes)} of {mib(now.total_bytes)}",
            rate=f"{mib(int(rate))}/s",
            left_s=round((now.total_bytes - now.done_bytes) / rate) if rate else None,
        )
