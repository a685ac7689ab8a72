"""A pod as the cluster tells of it, beside what its daemon says: values that the rest of the operator judges by.

Pure. Must never know how a daemon is asked, nor what is to be done about what is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from halogen_operator.engine_view import EngineView
from halogen_operator.names import DEVICES_ANNOTATION, TEMPLATE_ANNOTATION
from halogen_operator.reasons import Why

_IMAGE = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a pod, or another child of a HalogenModel, from doing its work."""

    why: Why
    message: str

    def __str__(self) -> str:
        return f"{self.why}: {self.message}"


@dataclass(frozen=True, slots=True)
class PodView:
    """`ip` is None before it runs, `devices` 0 where it has no accelerator, `template` the digest of the template that
    it was made from, empty where it has none. `is_deleting`: it is on its way out, or over."""

    name: str
    uid: str
    ip: str | None
    is_ready: bool
    is_deleting: bool
    devices: int = 0
    template: str = ""
    trouble: Trouble | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> PodView:
        """From a Pod as the API server has it. Whatever an optional part lacks or has wrong counts as not there."""
        meta, status = body["metadata"], body.get("status") or {}
        annotations = meta.get("annotations") or {}
        devices = str(annotations.get(DEVICES_ANNOTATION, "0"))
        is_over = status.get("phase") in ("Failed", "Succeeded")
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            ip=None if is_over else status.get("podIP") or None,
            is_ready=_condition(status, "Ready").get("status") == "True",
            is_deleting=bool(meta.get("deletionTimestamp")) or is_over,
            devices=int(devices) if devices.isascii() and devices.isdecimal() else 0,
            template=annotations.get(TEMPLATE_ANNOTATION, ""),
            trouble=next(_troubles(status), None),
        )


@dataclass(frozen=True, slots=True)
class PodState:
    """`engine` is what its daemon told just now; None, and why in `error`, where it did not."""

    pod: PodView
    engine: EngineView | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def is_there(self) -> bool:
        """Does it count as one of the HalogenModel's pods? One that is on its way out does not."""
        return not self.pod.is_deleting


def live_template(deployment: Mapping[str, Any] | None) -> str:
    """The digest of the template that a Deployment makes pods from now; empty where that is not told."""
    template = ((deployment or {}).get("spec") or {}).get("template") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(TEMPLATE_ANNOTATION, ""))


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found = (each for each in status.get("conditions") or () if each.get("type") == kind)
    return next(found, {})


def _troubles(status: Mapping[str, Any]) -> Iterator[Trouble]:
    """The worst first."""
    if status.get("phase") == "Failed":
        yield Trouble(Why.POD_FAILED, _text(status, "the pod failed"))
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        yield Trouble(Why.UNSCHEDULABLE, _text(scheduled, "no node takes the pod"))
    every = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    for container in every:
        yield from _container_troubles(container)


def _container_troubles(container: Mapping[str, Any]) -> Iterator[Trouble]:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in _IMAGE:
        yield Trouble(Why.IMAGE_PULL, f"{container.get('image', '')}: {_text(waiting, reason)}")
    elif reason in _CONFIG:
        yield Trouble(Why.CONTAINER_CONFIG, _text(waiting, reason))
    elif reason == "CrashLoopBackOff":
        yield Trouble(Why.CRASH_LOOP, f"{container.get('restartCount', 0)} restarts; the last end: {_end(container)}")


def _end(container: Mapping[str, Any]) -> str:
    ended = (container.get("lastState") or {}).get("terminated") or {}
    words = [str(ended.get("reason") or "for an unknown reason"), f"exit status {ended.get('exitCode', '?')}"]
    last_line = str(ended.get("message") or "").strip().rpartition("\n")[2]
    return ", ".join([*words, *([last_line] if last_line else [])])


def _text(part: Mapping[str, Any], otherwise: str) -> str:
    return str(part.get("message") or part.get("reason") or otherwise).strip()
