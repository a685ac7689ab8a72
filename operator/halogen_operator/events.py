"""What is told as events: the difference between two statuses.

Pure. An event is for what a person may want to act on or wait for; what merely goes on is in the conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from halogen_operator.conditions import cut, find, is_true
from halogen_operator.reasons import Kind

EventType = Literal["Normal", "Warning"]
_MESSAGE_CHARACTERS = 1024  # of an event, by the API


@dataclass(frozen=True, slots=True)
class Event:
    """`reason` is one of the conditions', or `Recovered`, or `NotReady`."""

    type: EventType
    reason: str
    message: str


def events(previous: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Event, ...]:
    """None where nothing but messages changed. `previous` is empty for an object that had no status."""
    return tuple(_events(previous, new))


def _events(previous: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    is_same = _desired(previous) == _desired(new)
    if _turned(previous, new, Kind.RECONCILING) and not is_same:
        yield Event("Normal", "Progressing", f"revision {_desired(new)} is on its way to the pods")
    for kind in (Kind.STALLED, Kind.DEGRADED):
        if _turned(previous, new, kind):
            yield _event("Warning", find(new, kind))
        elif is_true(previous, kind) and not is_true(new, kind):
            yield Event("Normal", "Recovered", f"no longer {kind.value}: it was {find(previous, kind).get('reason')}")
    if _turned(previous, new, Kind.READY):
        yield _event("Normal", find(new, Kind.READY))
    elif is_same and is_true(previous, Kind.READY) and not is_true(new, Kind.READY):
        message = cut(str(find(new, Kind.READY)["message"]), _MESSAGE_CHARACTERS)
        if not _is_edited(previous, new):
            yield Event("Warning", "NotReady", message)
        elif is_true(new, Kind.RECONCILING):  # scaled, mostly: from zero, by whom it pleased
            yield Event("Normal", "Progressing", message)


def _turned(previous: Mapping[str, Any], new: Mapping[str, Any], kind: Kind) -> bool:
    """Is it true, and was not, or of another generation, or for another reason? Being ready is told by generation,
    as long as another revision is served by it."""
    if not is_true(new, kind):
        return False
    before, now = find(previous, kind), find(new, kind)
    if before.get("status") != now["status"]:
        return True
    if kind in (Kind.STALLED, Kind.DEGRADED):
        is_new = kind is Kind.STALLED and before.get("observedGeneration") != now["observedGeneration"]
        return is_new or bool(before.get("reason") != now["reason"])
    return _desired(previous) != _desired(new)


def _is_edited(previous: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return bool(previous.get("observedGeneration") != new.get("observedGeneration"))


def _desired(status: Mapping[str, Any]) -> str | None:
    revision: str | None = (status.get("desired") or {}).get("revision")
    return revision


def _event(kind: EventType, condition: Mapping[str, Any]) -> Event:
    return Event(kind, str(condition["reason"]), cut(str(condition["message"]), _MESSAGE_CHARACTERS))
