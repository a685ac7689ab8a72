"""The admin application's other side, around a played world: real receipts, plans, holds and drains."""

from __future__ import annotations

import time
from typing import Any

from support.played.world import World

from halogend.control.cache_view import cache_view
from halogend.control.draining import Draining, draining
from halogend.control.events import Events
from halogend.control.planning import Given
from halogend.control.push import Push
from halogend.control.receipts import Receipt


class PlayedAdmin:
    """As the daemon puts it together."""

    def __init__(self, world: World) -> None:
        self.world = world

    def status(self) -> dict[str, Any]:
        return self.world.status()

    def receipts(self) -> tuple[Receipt, ...]:
        return self.world.reconciler.receipts.all()

    def receipt(self, receipt_id: str) -> Receipt | None:
        return self.world.reconciler.receipts.get(receipt_id)

    def reload(self, trigger: str, actor: str, *, force: bool = False) -> Receipt:
        return self.world.reconciler.reload(trigger, actor, force=force)

    def document(self, *, is_desired: bool = False) -> tuple[str, str | None]:
        return self.world.reconciler.document(is_desired=is_desired)

    def put(self, push: Push, actor: str, *, force: bool = False) -> Receipt:
        return self.world.steering.put(push, actor, force=force)

    async def plan_put(self, push: Push, *, force: bool = False) -> dict[str, Any]:
        return await self.world.steering.plan_put(push, force=force)

    async def plan(self, given: Given | None) -> dict[str, Any]:
        return await self.world.steering.plan(given)

    async def plan_rollback(self, receipt_id: str | None) -> dict[str, Any]:
        return await self.world.steering.plan_rollback(receipt_id)

    def rollback(self, receipt_id: str | None, actor: str) -> Receipt:
        return self.world.steering.rollback(receipt_id, actor)

    def hold(self, actor: str) -> dict[str, Any]:
        return self.world.steering.hold(actor)

    def resume(self, actor: str) -> Receipt | None:
        return self.world.steering.resume(actor)

    def ledger(self) -> dict[str, Any]:
        return self.world.steering.ledger()

    def cache(self) -> dict[str, Any]:
        return cache_view(self.world.house, time.monotonic())

    def events(self) -> Events:
        return self.world.house.events

    def draining(self, model: str) -> Draining:
        return draining(self.world.house, model)
