"""What an operator may see and ask for, put together from those who know and those who do it.

The other side of `api.ports.Admin`. Decides nothing; every receipt that is asked for here is followed by the
supervisor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halogend import version
from halogend.control.cache_view import cache_view
from halogend.control.draining import Draining, draining
from halogend.control.events import Events
from halogend.control.lookout import Lookout
from halogend.control.planning import Given
from halogend.control.push import Push
from halogend.control.receipts import Receipt
from halogend.control.reconciler import Reconciler
from halogend.control.status import status
from halogend.control.steering import Steering
from halogend.control.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Administration:
    """`started_at` is an epoch second; `views` are what listeners, the source and accelerators say of themselves,
    JSON-ready."""

    reconciler: Reconciler
    steering: Steering
    supervisor: Supervisor
    lookout: Lookout
    started_at: float
    views: Callable[[], dict[str, Any]]

    def status(self) -> dict[str, Any]:
        whole = status(self.reconciler, version(), self.started_at)
        views, devices = self.views(), self.steering.ledger()["devices"]
        for name, accelerator in views.pop("accelerators", {}).items():
            devices.setdefault(name, {})["accelerator"] = accelerator
        return {**whole, **self.steering.view(), **views, "devices": devices}

    def receipts(self) -> tuple[Receipt, ...]:
        return self.reconciler.receipts.all()

    def receipt(self, receipt_id: str) -> Receipt | None:
        return self.reconciler.receipts.get(receipt_id)

    def reload(self, trigger: str, actor: str, *, force: bool = False) -> Receipt:
        return self._followed(self.reconciler.reload(trigger, actor, force=force))

    async def plan(self, given: Given | None) -> dict[str, Any]:
        return await self.steering.plan(given)

    async def plan_rollback(self, receipt_id: str | None) -> dict[str, Any]:
        return await self.steering.plan_rollback(receipt_id)

    def rollback(self, receipt_id: str | None, actor: str) -> Receipt:
        return self._followed(self.steering.rollback(receipt_id, actor))

    def hold(self, actor: str) -> dict[str, Any]:
        held = self.steering.hold(actor)
        self.lookout.tick()
        return held

    def resume(self, actor: str) -> Receipt | None:
        receipt = self.steering.resume(actor)
        self.lookout.tick()
        return None if receipt is None else self._followed(receipt)

    def ledger(self) -> dict[str, Any]:
        return self.steering.ledger()

    def cache(self) -> dict[str, Any]:
        return cache_view(self.reconciler.house, time.monotonic())

    def events(self) -> Events:
        return self.reconciler.house.events

    def draining(self, model: str) -> Draining:
        return draining(self.reconciler.house, model)

    def put(self, push: Push, actor: str, *, force: bool = False) -> Receipt:
        return self._followed(self.steering.put(push, actor, force=force))

    async def plan_put(self, push: Push, *, force: bool = False) -> dict[str, Any]:
        return await self.steering.plan_put(push, force=force)

    def document(self, *, is_desired: bool = False) -> tuple[str, str | None]:
        return self.reconciler.document(is_desired=is_desired)

    def _followed(self, receipt: Receipt) -> Receipt:
        self.supervisor.follow(receipt)
        return receipt
