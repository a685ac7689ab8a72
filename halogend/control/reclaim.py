"""The end of a generation: drain, honest ends, exit, bytes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from halogend.config.codes import Code
from halogend.control.drain import Drain
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.receipts import ModelRecord
from halogend.control.replica import Replica
from halogend.control.retired import Leaver, Retired, Stage
from halogend.control.target import Target
from halogend.control.unit import Unit
from halogend.control.waits import first_of

_log = structlog.get_logger()
_DRAIN_LEAST_S, _DRAIN_MOST_S, _DRAIN_FACTOR = 30.0, 900.0, 1.5


async def reclaim(unit: Unit, retired: Retired, house: House, record: ModelRecord | None) -> None:
    """Drains the old generation up to the deadline, ends what is left honestly, and takes its memory back:
    done when both processes have exited. Also done when it serves again."""
    old = retired.generation
    try:
        await _park(unit, retired, house, record)
        if retired.stage is Stage.RETURNED or not await _drain(unit, retired, house, record):
            return
        await _end(old, house, record)
    except Exception as error:  # noqa: BLE001  a fault of ours: its memory and whoever waits for the end come first
        _tell_of_fault(unit, f"generation {old.number}", record, error)
        if retired.stage is Stage.PARKED:
            unit.end_probation()
        if not await retired.cut_short():
            return
        _end_at_once(unit, old.everybody)
        house.leave(old)
    unit.retired.remove(retired)
    house.router.forget_old_names(unit.name)
    house.tell_of_room()
    _log.info("generation_reclaimed", model=unit.name, generation=old.number, returned_bytes=old.returned_bytes)


async def _park(unit: Unit, retired: Retired, house: House, record: ModelRecord | None) -> None:
    """As long as what serves is on probation: until that is over, it has failed, or a newer document came."""
    probation = unit.probation
    if retired.stage is not Stage.PARKED or probation is None:
        return
    house.state(retired.generation, "parked")
    async with house.step(record, "probation") as step:
        step.detail.update(generation=probation.generation, parked=retired.generation.number)
        await first_of(retired.unparked(), retired.generation.died.wait(), asyncio.sleep(probation.left_s))
        step.detail.update(requests=probation.requests, errors=probation.errors, failed=probation.failed or None)
    if retired.stage is Stage.PARKED and (unit.probation is not probation or not probation.failed):
        unit.end_probation()
    await retired.unparked()


async def _drain(unit: Unit, retired: Retired, house: House, record: ModelRecord | None) -> bool:
    """False when it was taken back."""
    old, drain = retired.generation, retired.drain
    house.state(old, "draining")
    await old.measure()
    async with house.step(record, "drain") as step:
        step.detail.update(generation=old.number, limit_s=drain.limit_s)
        if not await retired.over():
            step.detail.update(taken_back=True)
            return False
        left = list(old.leases)
        if left:
            step.detail.update(ended=len(left), **({"by": drain.by} if drain.by else {}))
        what = "replaced" if unit.is_wanted else "removed"
        for lease in left:
            lease.end("draining", f"{unit.name} was {what}, and its {_why_over(drain)}")
    return True


def _why_over(drain: Drain) -> str:
    return "drain was ended by an operator" if drain.by else f"drain_timeout_s of {drain.limit_s:g} s is over"


async def _end(old: Generation, house: House, record: ModelRecord | None) -> None:
    async with house.step(record, "reclaim") as step:
        expected = old.expected_bytes
        statuses = await old.stop()
        house.leave(old)
        step.detail.update(exit_statuses=statuses, expected_bytes=expected, returned_bytes=old.returned_bytes)
    house.metrics.reclaimed(old.model, expected, old.returned_bytes)


def begin_leave(unit: Unit, generation: Generation, replica: Replica, part: Target | None, house: House) -> Leaver:
    """Its drain begins now; `dismiss` follows. `part` is what it was until now."""
    leaver = Leaver(generation, replica, part, Drain(drain_limit_s(unit, house)))
    unit.leavers.append(leaver)
    return leaver


async def dismiss(unit: Unit, leaver: Leaver, house: House, record: ModelRecord | None) -> None:
    """The same as `reclaim` for one replica."""
    try:
        await _until_gone(unit, leaver, house, record)
    finally:
        unit.leavers.remove(leaver)


async def _until_gone(unit: Unit, leaver: Leaver, house: House, record: ModelRecord | None) -> None:
    generation, replica = leaver.generation, leaver.replica
    try:
        if not await _dismiss(unit, leaver, house, record):
            return
    except Exception as error:  # noqa: BLE001  a fault of ours: as above
        _tell_of_fault(unit, replica.name, record, error)
        if not await leaver.cut_short():
            return
        _end_at_once(unit, [replica])
    try:
        house.leave_replica(replica)
    finally:
        generation.let_go(replica)
    house.tell_of_room()
    _log.info("replica_reclaimed", model=unit.name, replica=replica.name, returned_bytes=replica.memory.returned_bytes)


async def _dismiss(unit: Unit, leaver: Leaver, house: House, record: ModelRecord | None) -> bool:
    """False when it serves again."""
    replica, drain = leaver.replica, leaver.drain
    async with house.step(record, "drain") as step:
        step.detail.update(replica=replica.name, limit_s=drain.limit_s)
        if not await leaver.over():
            step.detail.update(taken_back=True)
            return False
        if left := list(replica.leases):
            step.detail.update(ended=len(left), **({"by": drain.by} if drain.by else {}))
        for lease in left:
            lease.end("draining", f"a replica of {unit.name} was taken away, and its {_why_over(drain)}")
    async with house.step(record, "reclaim") as step:
        expected = replica.memory.expected_bytes
        await leaver.generation.attended.over(replica)
        statuses = await replica.stop()
        returned = replica.memory.returned_bytes
        step.detail.update(exit_statuses=statuses, expected_bytes=expected, returned_bytes=returned)
    house.metrics.reclaimed(unit.name, expected, returned)
    return True


def _tell_of_fault(unit: Unit, which: str, record: ModelRecord | None, error: Exception) -> None:
    _log.exception("reclaim_failed", model=unit.name, which=which)
    if record is not None and record.error is None:
        record.error = f"{Code.INTERNAL}: {which} was ended without a drain: {error!r}"


def _end_at_once(unit: Unit, replicas: Iterable[Replica]) -> None:
    """Its requests are told; its processes are killed, and their bytes come back when they are gone."""
    for replica in replicas:
        try:
            for lease in list(replica.leases):
                lease.end("draining", f"{unit.name} was replaced, and a fault ended what answered this request")
        finally:
            replica.leave()
            replica.kill()


def drain_limit_s(unit: Unit, house: House) -> float:
    """`auto`: 1.5 times the p99 of a full request, between 30 and 900 s."""
    stated = "auto" if unit.active is None else unit.active.config.reload.drain_timeout_s
    if stated != "auto":
        return float(stated)
    return min(_DRAIN_MOST_S, max(_DRAIN_LEAST_S, _DRAIN_FACTOR * house.router.request_p99_s(unit.name)))
