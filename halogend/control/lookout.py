"""What moved since it was looked at last, as events: how models stand, how far loads are, what is held back.

Receipts, steps and generations tell of themselves; what is only a value somewhere is compared here, once a
second. Reads everything, writes nothing but events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from halogend.control.events import Events
from halogend.control.generation import Generation
from halogend.control.load_progress import progress_of
from halogend.control.reconciler import Reconciler
from halogend.control.replica import Replica
from halogend.control.status import state
from halogend.control.steering import Steering
from halogend.control.unit import Unit

_log = structlog.get_logger()
_EVERY_S = 1.0
_TROUBLE_CHARACTERS = 2000
_GONE = {"state": "gone", "trouble": None, "degraded": None}
View = dict[str, Any]


class Lookout:
    """`tick` is one look; single writer of what was seen. `source` tells how the source is watched, and as
    `reason` why no better."""

    def __init__(self, reconciler: Reconciler, steering: Steering, source: Callable[[], View] = dict) -> None:
        self._units = reconciler.house.units
        self._events: Events = reconciler.house.events
        self._steering = steering
        self._source = source
        self._models: dict[str, View] = {}
        self._replicas: dict[str, View] = {}
        self._loads: dict[tuple[str, int], View] = {}
        self._standing: View = {}

    async def run(self) -> None:
        while True:
            try:
                self.tick()
            except Exception:  # noqa: BLE001  whoever watches misses something; nobody else may notice
                _log.exception("lookout_failed")
            await asyncio.sleep(_EVERY_S)

    def tick(self) -> None:
        """One event for each thing that is not as it was: `model`, `replica`, `progress`, `hold`, ..."""
        self._look_at_models()
        self._look_at_replicas()
        self._look_at_loads()
        self._look_at_standing()

    def _look_at_models(self) -> None:
        now = {name: _model(unit) for name, unit in self._units.items()}
        for name, view in {**{name: _GONE for name in self._models if name not in now}, **now}.items():
            if view != self._models.get(name):
                self._events.publish("model", model=name, **view)
        self._models = now

    def _look_at_replicas(self) -> None:
        """Of generations that have several, or had; what becomes of the only one is told of its generation."""
        everybody = [each for unit in self._units.values() for each in unit.generations]
        copied = [each for each in everybody if len(each.everybody) > 1 or self._knows(each)]
        now = {replica.name: _replica(each, replica) for each in copied for replica in each.everybody}
        gone = {name: {**view, "state": "gone"} for name, view in self._replicas.items() if name not in now}
        for name, view in {**gone, **now}.items():
            if view != self._replicas.get(name):
                self._events.publish("replica", replica=name, **view)
        self._replicas = now

    def _knows(self, generation: Generation) -> bool:
        return any(each.name in self._replicas for each in generation.everybody)

    def _look_at_loads(self) -> None:
        loading = [into for each in self._units.values() if (into := each.filling) is not None]
        now = {(each.model, each.number): _progress(each) for each in loading}
        for (name, number), view in now.items():
            if view != self._loads.get((name, number)):
                self._events.publish("progress", model=name, generation=number, **view)
        self._loads = now

    def _look_at_standing(self) -> None:
        """Where state is kept and that a source is watched is no news; that it cannot be is."""
        now = self._steering.view()
        kept = now.pop("state")
        now["state_trouble"] = None if kept is None else kept["trouble"]
        source = self._source()
        now["source_trouble"], now["source_unread"] = source.get("reason"), source.get("unread")
        for key, value in now.items():
            if value != self._standing.get(key):
                self._events.publish(key, **{key: value})
        self._standing = now


def _model(unit: Unit) -> View:
    return {"state": state(unit), "trouble": _cut(unit.trouble), "degraded": _cut(unit.degraded)}


def _replica(generation: Generation, replica: Replica) -> View:
    numbers = {"model": generation.model, "generation": generation.number}
    return {**numbers, "device": replica.spec.device, "state": generation.state_of(replica)}


def _progress(generation: Generation) -> View:
    now = progress_of(generation.parts)
    return {"stage": now.stage, "loaded_bytes": now.done_bytes, "total_bytes": now.total_bytes}


def _cut(text: str | None) -> str | None:
    """A crash loop's trouble carries the last words of a process; the status has all of them."""
    return text if text is None or len(text) <= _TROUBLE_CHARACTERS else f"{text[:_TROUBLE_CHARACTERS]} ..."
