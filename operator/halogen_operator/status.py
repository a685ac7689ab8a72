"""The whole status of a HalogenModel, from what is wanted and what was seen.

Pure. Owns the shape (`halogend.config.custom_resource_status` has names and bounds) and which revision counts as
active. A status that is equal to the one before is not written again: nothing in here changes by time alone, but for
the deadline.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from halogen_operator import remembered
from halogen_operator.conditions import conditions, cut
from halogen_operator.course import course
from halogen_operator.engine_view import ReceiptView
from halogen_operator.judgement import verdicts
from halogen_operator.observed import Observed
from halogen_operator.pods import PodState
from halogen_operator.render import selector
from halogen_operator.wanted import Refusal, Wanted
from halogend.config.canonical import short_revision

MOST_PODS = 32
_LINE_CHARACTERS = 1024
_MOST_PROBLEMS = 16


def status(of: Wanted | Refusal, seen: Observed, previous: Mapping[str, Any], now: dt.datetime) -> dict[str, Any]:
    """To be written whole. `previous` is the one that the object has (or nothing): times of what did not change are
    taken from it. `now` has a time zone."""
    desired = None if isinstance(of, Refusal) else short_revision(of.revision)
    seen = replace(seen, trusted=remembered.trusted(seen, previous, desired))
    active = active_revision(seen, desired) or remembered.active(seen, previous)
    way = course(of, seen, previous, now)
    generation = of.generation
    found: dict[str, Any] = {
        "observedGeneration": generation,
        "selector": selector(of.ref),
        "replicas": len(seen.there),
        "readyReplicas": len(seen.ready),
        "updatedReplicas": sum(seen.serves(each) for each in seen.there),
        "active": None if active is None else {"revision": active},
        "desired": None if desired is None else {"revision": desired, "generation": generation},
        "pods": [_pod(each, seen, desired, previous) for each in _shown(seen)],
        "lastReceipt": _last_receipt(seen.there) or (previous.get("lastReceipt") if seen.trusted else None),
        "progress": None if way.progress is None else way.progress.view(),
        "plan": None if seen.plan is None else dict(seen.plan),
        "conditions": conditions(verdicts(of, seen, way, active), previous.get("conditions") or (), generation, now),
    }
    return {key: value for key, value in found.items() if value is not None}


def active_revision(seen: Observed, desired: str | None) -> str | None:
    """What requests are answered by: of several revisions that which most pods serve, and of as many the one that is
    not desired, for it is the older. None where nothing is served."""
    served = [_served(each, seen, desired) for each in seen.there]
    counted = Counter(each for each in served if each is not None)
    return max(counted, key=lambda each: (counted[each], each != desired, each), default=None)


def _served(state: PodState, seen: Observed, desired: str | None) -> str | None:
    """By our count: a daemon of another release may count the same document otherwise."""
    if state.name in seen.rollout.serving:
        return desired
    return None if state.engine is None else state.engine.served


def _shown(seen: Observed) -> Sequence[PodState]:
    """The first of them; with more than are shown, those that have something to tell come first."""
    if len(seen.there) <= MOST_PODS:
        return seen.there
    return sorted(seen.there, key=lambda each: (seen.serves(each), each.name))[:MOST_PODS]


def _pod(state: PodState, seen: Observed, desired: str | None, previous: Mapping[str, Any]) -> dict[str, Any]:
    engine = state.engine
    if state.name in seen.trusted:
        known = remembered.of_pod(previous, state.name)
        return {"name": state.name, "ready": True, **known, "message": _message(state, None)}
    receipt = None if engine is None else engine.receipt
    found = {
        "name": state.name,
        "ready": state.pod.is_ready,
        "revision": _served(state, seen, desired),
        "desired": desired if state.name in seen.rollout.serving else engine and engine.desired,
        "receipt": None if receipt is None else receipt.id,
        "outcome": None if receipt is None else receipt.outcome,
        "message": _message(state, receipt),
    }
    return {key: value for key, value in found.items() if value is not None}


def _message(state: PodState, receipt: ReceiptView | None) -> str | None:
    """What is in its way, the most telling first."""
    if state.pod.trouble is not None:
        return cut(str(state.pod.trouble), _LINE_CHARACTERS)
    if receipt is not None and receipt.is_refused:
        return cut(receipt.why, _LINE_CHARACTERS)
    if state.engine is None:
        return cut(state.error or "", _LINE_CHARACTERS) or None
    troubles = [text for each in state.engine.models for text in (each.trouble, each.degraded) if text]
    return cut(troubles[0], _LINE_CHARACTERS) if troubles else None


def _last_receipt(states: Sequence[PodState]) -> dict[str, Any] | None:
    """Of the newest generation that was handed to any pod; where one refused it, that one's."""
    found = [(each, each.engine.receipt) for each in states if each.engine is not None and each.engine.receipt]
    if not found:
        return None

    def rank(pair: tuple[PodState, ReceiptView]) -> tuple[int, bool, str]:
        return pair[1].generation or 0, pair[1].is_refused, pair[0].name

    state, receipt = max(found, key=rank)
    view = {
        "id": receipt.id,
        "pod": state.name,
        "generation": receipt.generation,
        "revision": receipt.revision,
        "outcome": receipt.outcome,
        "problems": [cut(each, _LINE_CHARACTERS) for each in (*receipt.problems, *receipt.errors)][:_MOST_PROBLEMS],
    }
    return {key: value for key, value in view.items() if value not in (None, [])}
