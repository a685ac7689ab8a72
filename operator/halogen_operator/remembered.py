"""What the status before says of pods whose daemons do not answer now.

Pure. That the operator cannot ask a pod changes nothing about what the pod serves: one that the kubelet finds ready,
and that served the wanted document when it was asked last, does so still. It is never handed a document by that word,
and a pod that nobody ever asked has none. Must never know conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halogen_operator.observed import Observed

_KEPT = ("revision", "desired", "receipt", "outcome")


def trusted(seen: Observed, previous: Mapping[str, Any], desired: str | None) -> frozenset[str]:
    """Names of pods that count as serving `desired`, as `status.pods` has it from when they answered."""
    if desired is None:
        return frozenset()
    known = {name for name, each in _pods(previous).items() if each.get("ready") and each.get("revision") == desired}
    return frozenset(name for name in _silent(seen) if name in known)


def active(seen: Observed, previous: Mapping[str, Any]) -> str | None:
    """The revision that was served last, as long as a pod is ready whose daemon does not answer."""
    revision: str | None = (previous.get("active") or {}).get("revision")
    return revision if _silent(seen) else None


def of_pod(previous: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What its entry in `status.pods` goes on to say."""
    known = _pods(previous).get(name, {})
    return {key: known[key] for key in _KEPT if key in known}


def _silent(seen: Observed) -> list[str]:
    return [each.name for each in seen.ready if each.engine is None]


def _pods(previous: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return {str(each.get("name")): each for each in previous.get("pods") or ()}
