"""Which operator acts where several were started.

kopf keeps this one's mark on the peering object and stops its watches while another goes first; this says the same
to those who look at models because some time has passed. Owns the reading of a peering object; writes none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Final

from halogen_operator.kube import Kube
from halogen_operator.resources import Kind
from halogen_operator.settings import Settings

PEERING: Final = Kind("KopfPeering", "kopf.dev", "v1", "kopfpeerings", watched=False)
CLUSTER_PEERING: Final = Kind("ClusterKopfPeering", "kopf.dev", "v1", "clusterkopfpeerings", watched=False)
_LIFETIME_S: Final = 60


async def goes_first(kube: Kube, settings: Settings, now: dt.datetime) -> str | None:
    """The identity of a living peer that goes before this operator; None: this one acts. Raises `KubeError`.

    A peering object that is not there lets nobody act, as with kopf: it was named, so it is wanted.
    """
    if settings.peering is None:
        return None
    kind, places = _where(settings)
    for namespace in places:
        body = await kube.get(kind, namespace, settings.peering)
        if body is None:
            return f"nobody: there is no {kind.name} {settings.peering}"
        first = _first(body, settings, now)
        if first is not None:
            return first
    return None


def _where(settings: Settings) -> tuple[Kind, Iterable[str | None]]:
    return (PEERING, settings.namespaces) if settings.namespaces else (CLUSTER_PEERING, (None,))


def _first(body: Mapping[str, Any], settings: Settings, now: dt.datetime) -> str | None:
    """Of the same priority both stand back: nobody can tell who should act."""
    for identity, peer in (body.get("status") or {}).items():
        if identity != settings.identity and _is_alive(peer, now) and peer.get("priority", 0) >= settings.priority:
            return str(identity)
    return None


def _is_alive(peer: Mapping[str, Any], now: dt.datetime) -> bool:
    """As kopf reads it: one that says nothing of when it was seen was seen now."""
    seen = peer.get("lastseen")
    lifetime = dt.timedelta(seconds=int(peer.get("lifetime", _LIFETIME_S)))
    if seen is None:
        return lifetime > dt.timedelta(0)
    last = dt.datetime.fromisoformat(seen)
    return (last if last.tzinfo else last.replace(tzinfo=dt.UTC)) + lifetime > now
