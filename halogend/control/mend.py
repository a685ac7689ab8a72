"""A replica that died while others of its generation serve: started again in its place, with back-off.

The others take its requests meanwhile, so nothing is given up: the tries go on, ever more seldom, as long
as the generation serves. Its bytes stay in the ledger, so that there is room for it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import msgspec
import structlog

from halogend.control.generation import Generation
from halogend.control.house import ENGINE_NICENESS, TEXT_NICENESS, House
from halogend.control.load import check_unchanged
from halogend.control.replica import Replica
from halogend.control.replica_spec import ReplicaSpec
from halogend.control.unit import Unit
from halogend.wire.control import PrepareEngine, PrepareText

_log = structlog.get_logger()
BACKOFF_S = (0.0, 1.0, 2.0, 5.0, 10.0, 60.0)  # before the first restart, the second, ... and all others
FORGIVEN_AFTER_S = 300.0


def nurse(unit: Unit, generation: Generation, house: House) -> None:
    """Looks after the replicas of a generation that serves from now on, also those that are dead already."""

    def lost(replica: Replica) -> None:
        if unit.probation is not None and unit.serving is generation:
            unit.probation.fail(f"{replica.name} died: {replica.reason}")
        house.cores.leave(replica)  # however long it takes until another is in its place
        if unit.serving is generation:
            house.show_replicas(generation)
            generation.attended.begin(replica, _mend(unit, generation, replica, house))

    generation.on_loss = lost
    house.show_replicas(generation)
    for replica in generation.replicas:
        if replica.died.is_set():
            lost(replica)


async def _mend(unit: Unit, generation: Generation, dead: Replica, house: House) -> None:
    """Returns when another stands in its place, or when the generation serves no more."""
    _log.error("replica_died", model=unit.name, replica=dead.name, reason=dead.reason, tail=dead.stderr_tail)
    dead.trouble = dead.reason
    await dead.stop()
    if dead.lingering:
        dead.trouble = f"its processes were killed and do not end: {dead.lingering}"
        await dead.gone()  # whoever comes in its place needs its bytes
    deaths = dead.deaths
    while unit.serving is generation:
        now = time.monotonic()
        deaths = (*(at for at in deaths if now - at < FORGIVEN_AFTER_S), now)
        await asyncio.sleep(BACKOFF_S[min(len(deaths), len(BACKOFF_S)) - 1])
        if unit.serving is not generation:
            return
        try:
            async with house.loads:
                newcomer = await _started(generation, dead, house)
            await _take_what_came(generation, newcomer, dead)
            _learn(unit, newcomer, house)
        except Exception as error:  # noqa: BLE001  whatever it was: nobody else would ever try again
            dead.trouble = str(error) or repr(error)
            _log.error("replica_not_started", model=unit.name, replica=dead.name, error=dead.trouble)
            continue
        newcomer.deaths = deaths
        generation.join(newcomer, instead_of=dead)
        house.cores.join(newcomer)
        house.show_replicas(generation)
        _log.info("replica_serving", model=unit.name, replica=newcomer.name)
        return


async def _started(generation: Generation, dead: Replica, house: House) -> Replica:
    """It could serve; with what was committed before. Raises StartError; its processes are gone then."""
    newcomer = generation.make(beside_others(dead.present_spec, house.cores.share(dead.spec.cores)), instead_of=dead)
    try:
        await check_unchanged(newcomer.spec)  # another model beside the others would be worse than none
        await newcomer.start()
        await check_unchanged(newcomer.spec)
        await newcomer.measure()
    except BaseException:
        await newcomer.stop()
        raise
    return newcomer


async def _take_what_came(generation: Generation, newcomer: Replica, dead: Replica) -> None:
    """Every live change that was committed until it returns. One that is held may wait for a load, so no place in
    their line is kept meanwhile. Raises StartError and UpdateError; its processes are gone then."""
    try:
        await generation.live.until_settled()
        while not _is_current(newcomer, dead):
            await _catch_up(generation, newcomer, dead)
            await generation.live.until_settled()
        newcomer.check_alive()
    except BaseException:
        await newcomer.stop()
        raise


def _learn(unit: Unit, newcomer: Replica, house: House) -> None:
    """From its own measure: what the one before it held says nothing of it."""
    if unit.active is not None:
        house.learn([newcomer], [unit.active.part_on(newcomer.spec.device) or unit.active])


def beside_others(spec: ReplicaSpec, threads: int) -> ReplicaSpec:
    """To be loaded where others of its generation serve, which it may not have been at first: `threads` is its part of
    the cores now."""
    engine = msgspec.structs.replace(spec.engine, loader_niceness=ENGINE_NICENESS, threads=threads)
    return replace(spec, engine=engine, text=msgspec.structs.replace(spec.text, loader_niceness=TEXT_NICENESS))


def _is_current(newcomer: Replica, dead: Replica) -> bool:
    newcomer.weight = dead.weight
    own = newcomer.present_spec
    return own == beside_others(dead.present_spec, own.engine.threads)


async def _catch_up(generation: Generation, newcomer: Replica, dead: Replica) -> None:
    """Takes what was committed while it started."""
    wanted, number = dead.present_spec, generation.live.next_update()
    text = PrepareText(update=number, limits=wanted.text.limits, chat_template=wanted.text.chat_template)
    engine = PrepareEngine(update=number, limits=wanted.engine.limits)
    await newcomer.changes.prepare(text, engine)
    newcomer.changes.commit(text, engine)
