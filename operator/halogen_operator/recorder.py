"""Events of HalogenModels, as `kubectl describe` shows them.

Owns what an Event object looks like and its name, by which one that is posted again is no second one. Must never
decide what is worth an event.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import structlog

from halogen_operator.kube import Kube, KubeError
from halogen_operator.names import API_VERSION, FIELD_MANAGER, KIND

_LOG = structlog.get_logger()
_MESSAGE_CHARACTERS: Final = 1024
_NAME_CHARACTERS: Final = 63
_DIGITS: Final = 16
_ONCE_IN_S: Final = 600


class Happened(Protocol):
    """What is told: `type` is Normal or Warning."""

    @property
    def type(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


async def record(
    kube: Kube, body: Mapping[str, Any], events: Iterable[Happened], now: dt.datetime, identity: str
) -> None:
    """Posts each. That an event cannot be posted keeps nobody from their work: it is logged."""
    for event in events:
        made = made_of(body, event, now, identity)
        try:
            await kube.create_event(made)
        except KubeError as error:
            _LOG.warning("event_not_posted", model=body["metadata"]["name"], reason=event.reason, error=str(error))


def made_of(body: Mapping[str, Any], event: Happened, now: dt.datetime, identity: str) -> dict[str, Any]:
    """The object to post. The same words of the same generation have the same name for ten minutes: an operator that
    was ended between the event and the new status, or whose status was refused, says nothing twice, and what comes and
    goes does not fill the list."""
    meta = body["metadata"]
    period = int(now.timestamp() // _ONCE_IN_S)
    ground = [meta["uid"], meta.get("generation"), event.type, event.reason, event.message, period]
    digest = hashlib.sha256(json.dumps(ground, sort_keys=True).encode()).hexdigest()[:_DIGITS]
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name'][:_NAME_CHARACTERS]}.{digest}", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:_MESSAGE_CHARACTERS],
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": identity,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
