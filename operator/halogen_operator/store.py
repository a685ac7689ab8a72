"""What the cluster holds, as the watches told it last.

Owns HalogenModels and their children by kind, place and name, and which model an object belongs to. One writer: the
event loop, from lists, watch events and answers to the operator's own writes. Objects here are never changed. Must
never speak to the API server, nor know what an object means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from halogen_operator.names import MODEL_LABEL
from halogen_operator.resources import HALOGEN_MODEL, Kind

Body = Mapping[str, Any]
Place = tuple[str, str]
"""Namespace and name."""

_MOST_GONE: Final = 10_000
"""UIDs of deleted objects that are known to be gone, the last ones."""


class Store:
    """An older version of an object never replaces a newer one, whichever way each came."""

    def __init__(self) -> None:
        self._held: dict[str, dict[Place, Body]] = {}
        self._models: dict[str, Place] = {}
        self._children: dict[Place, set[tuple[str, Place]]] = {}
        self._listed: set[tuple[str, str | None]] = set()
        self._gone: dict[str, None] = {}

    # --- writing ------------------------------------------------------------------------------

    def put(self, body: Body) -> str | None:
        """Takes an object as it stands. Returns the UID of the model it concerns; None: nothing new, or no model's."""
        kind, place = body["kind"], _place(body)
        known = self._held.setdefault(kind, {}).get(place)
        is_old = known is not None and _version(known) >= _version(body)
        if is_old or _uid(body) in self._gone:  # an answer to a write may come later than the event of a deletion
            return None
        if known is not None:
            self._take_out(kind, place)
        self._held[kind][place] = body
        if kind == HALOGEN_MODEL.name:
            self._models[body["metadata"]["uid"]] = place
        elif (owner := _owner(body)) is not None:
            self._children.setdefault(owner, set()).add((kind, place))
        return self._concerned(body)

    def remove(self, body: Body) -> str | None:
        """Forgets a deleted object, if it is the one held. Returns the UID of the model it concerns."""
        kind, place = body["kind"], _place(body)
        self._gone[_uid(body)] = None
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        known = self._held.get(kind, {}).get(place)
        if known is None or _uid(known) != _uid(body):
            return None
        concerned = self._concerned(known)
        self._take_out(kind, place)
        return concerned

    def replace(self, kind: Kind, namespace: str | None, bodies: Iterable[Body], version: str) -> set[str]:
        """Takes the whole list of a kind, of one namespace or (None) of all, as of `version`.

        What is held and not in the list is gone, but for what is newer than the list. Returns the UIDs concerned.
        """
        listed = {_place(body): body for body in bodies}
        concerned = {self.put(body) for body in listed.values()}
        for place, body in list(self._held.get(kind.name, {}).items()):
            is_in_scope = namespace is None or place[0] == namespace
            if is_in_scope and place not in listed and _version(body) <= _number(version):
                concerned.add(self.remove(body))
        self._listed.add((kind.name, namespace))
        return {uid for uid in concerned if uid is not None}

    # --- reading ------------------------------------------------------------------------------

    def has_listed(self, kinds: Iterable[Kind], namespaces: Iterable[str | None]) -> bool:
        """Whether all of these were listed once: before, what is not here may well be there."""
        places = tuple(namespaces)
        return all((kind.name, namespace) in self._listed for kind in kinds for namespace in places)

    def model(self, uid: str) -> Body | None:
        """The HalogenModel of this UID."""
        place = self._models.get(uid)
        return None if place is None else self._held[HALOGEN_MODEL.name].get(place)

    def models(self) -> Iterator[Body]:
        """Every HalogenModel."""
        return iter(tuple(self._held.get(HALOGEN_MODEL.name, {}).values()))

    def find(self, kind: Kind, namespace: str, name: str) -> Body | None:
        """One object."""
        return self._held.get(kind.name, {}).get((namespace, name))

    def children(self, namespace: str, name: str, kind: Kind) -> tuple[Body, ...]:
        """Objects of a kind that carry this model's label, in order of their names."""
        places = sorted(place for known, place in self._children.get((namespace, name), ()) if known == kind.name)
        return tuple(self._held[kind.name][place] for place in places)

    # --- inside -------------------------------------------------------------------------------

    def _take_out(self, kind: str, place: Place) -> None:
        body = self._held[kind].pop(place)
        if kind == HALOGEN_MODEL.name:
            self._models.pop(_uid(body), None)
        elif (owner := _owner(body)) is not None:
            of_owner = self._children.get(owner, set())
            of_owner.discard((kind, place))
            if not of_owner:
                self._children.pop(owner, None)

    def _concerned(self, body: Body) -> str | None:
        if body["kind"] == HALOGEN_MODEL.name:
            return _uid(body)
        owner = _owner(body)
        model = None if owner is None else self._held.get(HALOGEN_MODEL.name, {}).get(owner)
        return None if model is None else _uid(model)


def _place(body: Body) -> Place:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _uid(body: Body) -> str:
    uid: str = body["metadata"]["uid"]
    return uid


def _owner(body: Body) -> Place | None:
    """Where the model stands whose label the object carries."""
    name = (body["metadata"].get("labels") or {}).get(MODEL_LABEL)
    return None if name is None else (body["metadata"]["namespace"], name)


def _version(body: Body) -> int:
    return _number(body["metadata"]["resourceVersion"])


def _number(version: str) -> int:
    """Resource versions are decimal numbers that grow, and may be compared (Kubernetes' API conventions since 1.35)."""
    return int(version)
