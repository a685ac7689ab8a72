"""Atomic changes: the models of one wait for each other, and are switched with the listeners at one moment.

Owns the barrier of the newest. What happens to a model before and after is its own task's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from halogend.config.codes import Code
from halogend.control.barrier import Barrier
from halogend.control.entrance import Entrance
from halogend.control.house import House
from halogend.control.in_force import InForce
from halogend.control.plan import Plan
from halogend.control.planning import Draft
from halogend.control.receipts import ModelAction, Receipt

_log = structlog.get_logger()
Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Together:
    """`newest` is the barrier of the last atomic change, whatever came of it. `judging` is the reconciler's lock,
    `spawn` starts a task of the reconciler's."""

    def __init__(
        self, house: House, entrance: Entrance, in_force: InForce, judging: asyncio.Lock, spawn: Spawn
    ) -> None:
        self.newest: Barrier | None = None
        self._house = house
        self._entrance = entrance
        self._in_force = in_force
        self._judging = judging
        self._spawn = spawn

    @property
    def waiting(self) -> Barrier | None:
        """The atomic change that is on its way."""
        return None if self.newest is None or self.newest.is_settled else self.newest

    def barrier(self, receipt: Receipt, drafted: Draft, plan: Plan) -> Barrier:
        """Where the models that change wait for each other."""
        names = [each.model for each in plan.models if each.action is not ModelAction.KEEP]

        def come(barrier: Barrier) -> None:
            self._spawn(self.open(barrier, receipt, drafted))

        def broken() -> None:
            for name in names:
                if (unit := self._house.units.get(name)) is not None:
                    unit.wake()

        barrier = Barrier(names, come, broken)
        if not names:
            come(barrier)
        return barrier

    async def open(self, barrier: Barrier, receipt: Receipt, drafted: Draft) -> None:
        """All models are ready: listeners first, which may refuse, and then every model at once."""
        try:
            async with self._judging:
                if not barrier.begin():
                    return
                try:
                    problems = await self._entrance.prepare(drafted) or await self._entrance.commit(drafted.wanted)
                finally:
                    await self._entrance.discard()
                if problems:
                    receipt.problems = tuple(drafted.placed(problem) for problem in problems)
                    barrier.fail(str(problems[0]), while_opening=True)
                else:
                    await self._commit(barrier, drafted)
        finally:
            barrier.fail("it could not be made in one go", while_opening=True)

    async def _commit(self, barrier: Barrier, drafted: Draft) -> None:
        """Every model; a fault of ours on the way takes the listeners back as well."""
        try:
            barrier.commit()
        except Exception as error:  # noqa: BLE001  whatever it was: what is made goes back, and nobody waits
            _log.exception("switch_failed")
            barrier.fail(f"{Code.INTERNAL}: {error!r}", while_opening=True)
            await self._entrance.back(self._in_force.document, self._in_force.access)
        else:
            self._in_force.put(drafted)
