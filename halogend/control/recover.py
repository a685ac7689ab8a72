"""When the engine of a serving model dies: others serve on, it is started again with back-off.

A crash loop ends in a stated failure that only a new document or an explicit reload leaves.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from halogend.config.codes import Code
from halogend.control.admission import Superseded
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.load import load, present_fingerprint
from halogend.control.startup import StartError
from halogend.control.target import Target
from halogend.control.turns import assign
from halogend.control.unit import Unit
from halogend.control.waits import first_of
from halogend.obs.readable import readable

_log = structlog.get_logger()
BACKOFF_S = (0.0, 1.0, 2.0, 5.0, 10.0)  # before the first restart, the second, ...
FORGIVEN_AFTER_S = 300.0


async def recover(unit: Unit, house: House) -> None:
    """Buries the dead generation and starts its spec again. Returns when it serves, when a newer
    change is wanted, or when it was given up."""
    dead, target = unit.serving, unit.active
    if dead is None or target is None:
        return
    house.router.hold(unit.name)
    unit.serving = None
    unit.trouble = f"{Code.ENGINE_DIED}: {dead.reason}"
    _log.error("engine_died", model=unit.name, generation=dead.number, reason=dead.reason, tail=dead.stderr_tail)
    house.state(dead, "dead")
    await house.end_all(dead)
    tail = dead.stderr_tail
    while unit.newer is None:
        wait_s = _next_backoff_s(unit, time.monotonic())
        if wait_s is None:
            failed = f"{unit.name} failed {len(unit.deaths)} times in a row, dying or starting"
            unit.trouble = f"{Code.CRASH_LOOP}: {failed}; last said: {readable(tail)}"
            house.router.give_up(unit.name, failed)
            _log.error("crash_loop", model=unit.name, deaths=len(unit.deaths))
            return
        await first_of(unit.until_wanted(), asyncio.sleep(wait_s))
        await _until_it_fits(unit, target, dead, house)
        if unit.newer is not None:
            return
        try:
            present = await present_fingerprint(target)
            newcomer = await load(unit, target, house, None, present)
        except Superseded:
            return
        except StartError as error:
            tail = error.tail or str(error)
            unit.trouble = str(error)
            _log.error("restart_failed", model=unit.name, error=str(error))
            continue
        assign(unit, target, newcomer, house, None)
        path, planned = target.inputs.checkpoint
        unit.degraded = None if present == planned else f"InputsChanged: {path} is not the file that was planned with"
        return


async def _until_it_fits(unit: Unit, target: Target, dead: Generation, house: House) -> None:
    """Where processes of the dead one do not end: until their bytes are back, or there is room beside them, or a
    newer change is wanted."""
    while dead.lingering and unit.newer is None and not house.fits(target):
        unit.trouble = f"{Code.ENGINE_DIED}: its processes were killed and do not end: {dead.lingering}"
        await first_of(unit.until_wanted(), house.ledger.changed.wait())


def _next_backoff_s(unit: Unit, now: float) -> float | None:
    """Counts this death; None when there were too many in a row."""
    unit.deaths = [at for at in unit.deaths if now - at < FORGIVEN_AFTER_S]
    unit.deaths.append(now)
    died = len(unit.deaths)
    return BACKOFF_S[died - 1] if died <= len(BACKOFF_S) else None
