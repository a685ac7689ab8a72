"""The five conditions of a HalogenModel as the API server keeps them.

Owns when `lastTransitionTime` moves: where `status` changes, and only there. Pure; what is true is judged elsewhere.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from halogen_operator.reasons import Kind, Why

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
_MESSAGE_CHARACTERS = 2048


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition as it is now. `status` is True, False or Unknown, in words as Kubernetes has it."""

    kind: Kind
    status: str
    why: Why
    message: str


def conditions(
    verdicts: Iterable[Verdict], previous: Iterable[Mapping[str, Any]], generation: int, now: dt.datetime
) -> list[dict[str, Any]]:
    """In the order of the verdicts. `previous` are those of the status before, of which only times are taken."""
    before = {each.get("type"): each for each in previous}
    return [_condition(each, before.get(each.kind), generation, now) for each in verdicts]


def find(status: Mapping[str, Any], kind: Kind) -> Mapping[str, Any]:
    """Of a status; empty where it has none."""
    return next((each for each in status.get("conditions") or () if each.get("type") == kind), {})


def is_true(status: Mapping[str, Any], kind: Kind) -> bool:
    return find(status, kind).get("status") == TRUE


def stamp(moment: dt.datetime) -> str:
    """As Kubernetes writes times: UTC, whole seconds."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> dt.datetime | None:
    """None for what is no time."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def cut(text: str, characters: int = _MESSAGE_CHARACTERS) -> str:
    return text if len(text) <= characters else f"{text[: characters - 4]} ..."


def _condition(verdict: Verdict, before: Mapping[str, Any] | None, generation: int, now: dt.datetime) -> dict[str, Any]:
    is_same = before is not None and before.get("status") == verdict.status
    since = before.get("lastTransitionTime") if before is not None and is_same else None
    return {
        "type": verdict.kind.value,
        "status": verdict.status,
        "observedGeneration": generation,
        "lastTransitionTime": since or stamp(now),
        "reason": verdict.why.value,
        "message": cut(verdict.message),
    }
