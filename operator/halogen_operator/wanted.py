"""A HalogenModel as the API server gives it -> what is wanted, or why it cannot be had.

Owns the reading of a spec; must never know a cluster, a pod or what is there already. Pure: the same body and house
give the same answer, whoever asks and when.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halogen_operator.accelerators import Vendor, misfit, needed
from halogen_operator.document import document_of
from halogen_operator.house import House
from halogen_operator.names import OWN_FOLDERS, PLAN_ONLY_ANNOTATION, VOLUME_PREFIX, admin_name
from halogend.config.custom_resource import HalogenModelSpec, read_spec

MOST_PROBLEMS = 20
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Ref:
    """Which HalogenModel. `uid` tells it from one of the same name before or after."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Ref:
        """From any object's metadata."""
        metadata = body["metadata"]
        return cls(metadata.get("namespace", ""), metadata["name"], metadata["uid"])


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a sound spec asks for. `document` is the canonical text that every pod is to serve and `revision` its
    sha256, 64 digits. `written` is the same with no default filled in: what pods are handed and start with, for a
    daemon older than the operator refuses a field that it has not heard of. `devices` is how many accelerators of
    `accelerator` that takes. `is_plan_only`: nothing may be changed, what would be is told."""

    ref: Ref
    generation: int
    spec: HalogenModelSpec
    document: str
    written: str
    revision: str
    devices: int
    accelerator: Vendor | None
    is_plan_only: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a spec cannot be had. Each of `problems` begins with its place: `spec.watermarks.soft: ...`."""

    ref: Ref
    generation: int
    problems: tuple[str, ...]


def read(body: Mapping[str, Any], house: House) -> Wanted | Refusal:
    """Every problem at once. Nothing a user may write raises here."""
    ref = Ref.of(body)
    generation = int(body["metadata"].get("generation", 0))
    raw = body.get("spec") or {}
    spec, problems = read_spec(raw)
    if spec is None:
        return Refusal(ref, generation, _bounded((*_misnamed(ref), *problems)))
    found = document_of(raw, spec, ref.name, house)
    devices, accelerator = needed(spec)
    problems = (*_misnamed(ref), *misfit(spec), *_misplaced(spec), *_borrowed(spec, ref), *found.problems)
    if problems:
        return Refusal(ref, generation, _bounded(problems))
    is_plan_only = _is_held_back((body["metadata"].get("annotations") or {}).get(PLAN_ONLY_ANNOTATION))
    return Wanted(ref, generation, spec, found.text, found.written, found.revision, devices, accelerator, is_plan_only)


def _is_held_back(annotation: str | None) -> bool:
    """Whoever writes the annotation wants nothing done, however they spell it: only `false` lets go."""
    return annotation is not None and annotation.strip().lower() != "false"


def _bounded(problems: tuple[str, ...]) -> tuple[str, ...]:
    rest = len(problems) - MOST_PROBLEMS
    return problems if rest <= 0 else (*problems[:MOST_PROBLEMS], f"spec: {rest} more problems are not shown")


def _misnamed(ref: Ref) -> tuple[str, ...]:
    """A Service is called as the HalogenModel, and its names are labels of DNS (RFC 1035)."""
    if _NAME.fullmatch(ref.name):
        return ()
    text = "must be at most 63 lower-case letters, digits or -, begin with a letter and not end with -"
    return (f"metadata.name: {text}: the Service has this name too",)


def _misplaced(spec: HalogenModelSpec) -> tuple[str, ...]:
    """Volumes that would lie over the pod's own, or have a name of those."""
    found = []
    for index, volume in enumerate(spec.volumes):
        place = f"spec.volumes[{index}]"
        if volume.name.startswith(VOLUME_PREFIX):
            found.append(f"{place}.name: must not begin with {VOLUME_PREFIX}, as the pod's own volumes do")
        path = volume.mount_path
        own = next((each for each in OWN_FOLDERS if f"{path}/".startswith(f"{each}/")), None)
        own = own or next((each for each in OWN_FOLDERS if each.startswith(f"{path}/")), None)
        if own is not None:
            found.append(f"{place}.mountPath: must not lie over {own}, which the daemon needs; /models is free")
    return tuple(found)


def _borrowed(spec: HalogenModelSpec, ref: Ref) -> tuple[str, ...]:
    """The operator's own Secret is nobody's API key."""
    own = admin_name(ref.name)
    return tuple(
        f"spec.auth.keys[{index}].secretKeyRef.name: must not be {own}, the Secret of the operator"
        for index, key in enumerate(spec.auth.keys or ())
        if key.secret.name == own
    )
