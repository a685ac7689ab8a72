"""Children as they should be -> children as they are: what is missing or other is applied, what is not wanted goes.

Owns the comparison of a manifest with a live object, and whose a live object is. Must never know what is in a child.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from halogen_operator.kube import Kube, KubeError
from halogen_operator.names import FIELD_MANAGER, KIND, MANAGED_BY_LABEL, RENDERED_ANNOTATION
from halogen_operator.resources import (
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SERVICE_MONITOR,
    Kind,
    kind_of,
)
from halogen_operator.store import Store
from halogen_operator.wanted import Ref

OPTIONAL: Final[tuple[Kind, ...]] = (DISRUPTION_BUDGET, SERVICE_MONITOR)
"""Children that a spec may have or not."""

_ESSENTIAL: Final = frozenset({DEPLOYMENT.name, SERVICE.name})
"""Children without which what is wanted answers nobody, whatever else serves."""
_GROUND: Final = frozenset({SERVICE_ACCOUNT.name, SECRET.name, CONFIG_MAP.name})
"""Children that pods name. With those of somebody else of the same name a pod would have another's rights or keys."""

_FORBIDDEN: Final = 403
_REFUSALS: Final = frozenset({400, 403, 404, 405, 413, 415, 422})
_LASTING: Final = ("field not declared in schema", "failed calling webhook")
"""Words of a 500 that will not go better soon: an apply of a field that the server is too old for, and an admission
webhook that nobody answers for."""

_QUANTITIES: Final = frozenset({"limits", "requests", "sizeLimit"})
_ASSOCIATIVE: Final = frozenset(
    {"containers", "initContainers", "env", "ports", "volumes", "volumeMounts", "imagePullSecrets", "ownerReferences"}
)
_ATOMIC_MAPS: Final = frozenset({"selector", "matchLabels", "nodeSelector"})
"""One value, by the API: a pair that somebody added says something else, such as a Service that selects no pod."""
_ATOMIC_KINDS: Final = frozenset({"NetworkPolicy"})
"""Where a list is whole or not at all: a rule that somebody added is taken away again."""

_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkKMGTPE]i?|)")
_FACTORS: Final[Mapping[str, Decimal]] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


class Whose(enum.Enum):
    """Whose a live object is."""

    OURS = enum.auto()
    PREDECESSORS = enum.auto()  # of a HalogenModel of the same name that is gone: it is about to go too
    FOREIGN = enum.auto()


@dataclass(frozen=True, slots=True)
class Refused:
    """A child that could not be had, and why. `is_absent`: there is none of ours at all, not even as it was.
    `is_passing`: it is a predecessor's, which the cluster is about to take away."""

    kind: str
    message: str
    is_absent: bool = False
    is_passing: bool = False

    @property
    def is_essential(self) -> bool:
        """Does what is wanted answer nobody without it?"""
        return self.kind in _ESSENTIAL


async def applied(kube: Kube, store: Store, ref: Ref, manifests: Iterable[Mapping[str, Any]]) -> tuple[Refused, ...]:
    """Applies what is missing or differs, in the order given, and tells the store.

    Returns what was refused until something is mended, or a predecessor is gone. No pods are asked for by a name that
    is somebody else's. Raises `KubeError` for what may go better soon.
    """
    refused: list[Refused] = []
    for manifest in manifests:
        live = await _live(kube, store, manifest)
        if live is not None and whose(live, ref) is not Whose.OURS:
            refused.append(_not_ours(manifest["kind"], live, ref))
        elif differs(manifest, live):
            lack = next((each for each in refused if each.is_absent and each.kind in _GROUND), None)
            if lack is not None and manifest["kind"] == DEPLOYMENT.name:
                message = f"{_named(manifest)} waits: its pods need the {lack.kind}"
                refused.append(replace(lack, kind=DEPLOYMENT.name, message=message))
                continue
            try:
                store.put(await kube.apply(manifest))
            except KubeError as error:
                if error.status not in _REFUSALS and not any(words in error.message for words in _LASTING):
                    raise
                message = f"{_named(manifest)}: {error.message}"
                refused.append(Refused(manifest["kind"], message, is_absent=live is None))
    return tuple(refused)


async def remove_unwanted(kube: Kube, store: Store, ref: Ref, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Deletes optional children that are not among the manifests. Raises `KubeError`."""
    rendered = {manifest["kind"] for manifest in manifests}
    for kind in OPTIONAL:
        if kind.name in rendered:
            continue
        live = await _optional(kube, store, ref, kind)
        if live is not None and whose(live, ref) is Whose.OURS:
            await kube.delete({"kind": kind.name, **live})


async def _optional(kube: Kube, store: Store, ref: Ref, kind: Kind) -> Mapping[str, Any] | None:
    if kind.watched:
        return store.find(kind, ref.namespace, ref.name)
    try:
        return await kube.get(kind, ref.namespace, ref.name)
    except KubeError as error:
        if error.status != _FORBIDDEN:
            raise
        return None  # what this operator may not read it has not made


def whose(live: Mapping[str, Any], ref: Ref) -> Whose:
    """By its controller; one without is ours if it has the operator's label."""
    meta = live["metadata"]
    controller = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), None)
    if controller is None:
        is_labelled = (meta.get("labels") or {}).get(MANAGED_BY_LABEL) == FIELD_MANAGER
        return Whose.OURS if is_labelled else Whose.FOREIGN
    if controller["uid"] == ref.uid:
        return Whose.OURS
    is_namesake = (controller.get("kind"), controller.get("name")) == (KIND, ref.name)
    return Whose.PREDECESSORS if is_namesake else Whose.FOREIGN


def differs(manifest: Mapping[str, Any], live: Mapping[str, Any] | None) -> bool:
    """Whether applying would change anything: the live object is missing, was rendered otherwise, or somebody changed
    a field that the manifest has. What else it holds (defaults, other writers' fields) is none of our business."""
    if live is None:
        return True
    digest, known = ((each["metadata"].get("annotations") or {}).get(RENDERED_ANNOTATION) for each in (manifest, live))
    is_exact = manifest["kind"] in _ATOMIC_KINDS
    return digest != known or not _holds(live, manifest, "", is_exact=is_exact)


async def _live(kube: Kube, store: Store, manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """From the store; what it does not hold may be there all the same, without the label that is watched."""
    kind, meta = kind_of(manifest), manifest["metadata"]
    found = store.find(kind, meta["namespace"], meta["name"])
    return found if found is not None else await kube.get(kind, meta["namespace"], meta["name"])


def _not_ours(kind: str, live: Mapping[str, Any], ref: Ref) -> Refused:
    if whose(live, ref) is Whose.PREDECESSORS:
        message = f"{_named(live)} of a {KIND} before this one is still there"
        return Refused(kind, message, is_absent=True, is_passing=True)
    message = f"{_named(live)} is there already and is not this {KIND}'s: delete it, or take another name"
    return Refused(kind, message, is_absent=True)


def _named(body: Mapping[str, Any]) -> str:
    return f"{body.get('kind', 'object')} {body['metadata']['name']}"


def _holds(live: Any, wanted: Any, key: str, *, is_exact: bool) -> bool:
    """Whether all that is wanted is there; nothing may stand for an empty value."""
    if isinstance(wanted, Mapping):
        is_whole = key not in _ATOMIC_MAPS or (isinstance(live, Mapping) and len(live) == len(wanted))
        return (
            is_whole
            and isinstance(live, Mapping)
            and all(
                _holds_field(live.get(name), value, _quantity_key(key, name), is_exact=is_exact)
                for name, value in wanted.items()
            )
        )
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return _holds_list(live, wanted, key, is_exact=is_exact)
    if key in _QUANTITIES:
        return quantity(live) == quantity(wanted)
    return bool(live == wanted)


def _holds_field(live: Any, wanted: Any, key: str, *, is_exact: bool) -> bool:
    if live is None:
        return wanted in (None, "", False, 0, [], {}, ())
    return _holds(live, wanted, key, is_exact=is_exact)


def _holds_list(live: Any, wanted: Sequence[Any], key: str, *, is_exact: bool) -> bool:
    if not isinstance(live, Sequence) or isinstance(live, str):
        return False
    if key in _ASSOCIATIVE and not is_exact:
        return all(any(_holds(each, one, key, is_exact=is_exact) for each in live) for one in wanted)
    return len(live) == len(wanted) and all(
        _holds(each, one, key, is_exact=is_exact) for each, one in zip(live, wanted, strict=True)
    )


def _quantity_key(outer: str, name: str) -> str:
    return outer if outer in _QUANTITIES else name


def quantity(value: Any) -> Decimal | str:
    """The value of a Kubernetes quantity (`500m`, `2Gi`, `1e3`); what is none stays a text."""
    text = str(value)
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in _FACTORS:
        return text
    return Decimal(found[1]) * _FACTORS[found[2]]
