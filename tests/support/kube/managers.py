"""The book of an object's field managers, and server-side apply: what an applier adds, keeps, loses or may not have."""

import copy
from dataclasses import dataclass, replace
from typing import Any

from support.kube.errors import Cause, apply_conflict
from support.kube.kinds import Kind
from support.kube.ownership import (
    Fields,
    Path,
    covers,
    dotted,
    from_wire,
    is_key,
    key_step,
    leaves,
    to_wire,
    value_step,
)
from support.kube.shapes import item_key, shape


@dataclass(frozen=True)
class Manager:
    """One entry of managedFields."""

    name: str
    operation: str
    api_version: str
    subresource: str
    fields: Fields
    time: str

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.name, self.operation, self.subresource

    @property
    def wire(self) -> dict[str, Any]:
        entry = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_wire(self.fields),
        }
        return entry | {"subresource": self.subresource} if self.subresource else entry


_EMPTY = ({}, [])  # as good as not there: it is not stored
_NOTHING = object()


def read(body: dict[str, Any]) -> list[Manager]:
    return [
        Manager(
            name=entry["manager"],
            operation=entry["operation"],
            api_version=entry.get("apiVersion", ""),
            subresource=entry.get("subresource", ""),
            fields=from_wire(entry.get("fieldsV1", {})),
            time=entry.get("time", ""),
        )
        for entry in body.get("metadata", {}).get("managedFields") or []
    ]


def _written(body: dict[str, Any], managers: list[Manager]) -> dict[str, Any]:
    entries = [manager.wire for manager in managers if manager.fields]
    return body | {"metadata": body["metadata"] | {"managedFields": entries}}


def _changed(kind: Kind, before: dict[str, Any], after: dict[str, Any]) -> tuple[Fields, Fields]:
    """Fields that were added or got another value, and fields that went away."""
    old, new = leaves(kind, before), leaves(kind, after)
    touched = frozenset(
        path
        for path, value in new.items()
        if old.get(path, _NOTHING) != value and not (path not in old and value in _EMPTY)
    )
    return touched, frozenset(path for path in old if path not in new)


def _one_less(managers: list[Manager], taken: Fields, but: tuple[str, str, str] | None) -> list[Manager]:
    return [m if m.identity == but else replace(m, fields=m.fields - taken) for m in managers]


def updated(kind: Kind, before: dict[str, Any] | None, after: dict[str, Any], author: Manager) -> dict[str, Any]:
    """`after` with its book kept: whoever changes a field by PUT, POST or PATCH owns it, alone."""
    managers = read(before) if before else []
    touched, gone = _changed(kind, before or {"metadata": {}}, after)
    managers = _one_less(managers, touched | gone, None)
    mine = next((m for m in managers if m.identity == author.identity), None)
    if touched:
        held = touched | (mine.fields if mine else frozenset())
        managers = [m for m in managers if m is not mine] + [replace(author, fields=held)]
    return _written(after, managers)


def applied(
    kind: Kind, live: dict[str, Any] | None, wanted: dict[str, Any], author: Manager, *, force: bool
) -> dict[str, Any]:
    """The object after a server-side apply of `wanted` by `author`.

    Raises:
        ApiError: 409, another manager holds a field that would change, and the apply is not forced.
    """
    mine_now = frozenset(leaves(kind, wanted))
    if live is None:
        return _written(copy.deepcopy(wanted), [replace(author, fields=mine_now)])
    managers = read(live)
    mine = next((m for m in managers if m.identity == author.identity), None)
    others = [m for m in managers if m is not mine]
    merged = _merge(kind, live, wanted, ())
    for path in sorted((mine.fields if mine else frozenset()) - mine_now, key=len):
        is_held = covers(mine_now, path) or any(covers(m.fields, path) for m in others)
        if not is_held and not is_key(path):
            _remove(kind, merged, path)
    touched, _ = _changed(kind, live, merged)
    taken = touched & mine_now
    conflicts = [(m, path) for m in others for path in sorted(m.fields & taken)]
    if conflicts and not force:
        raise apply_conflict([_conflict(manager, path) for manager, path in conflicts])
    others = _one_less(others, taken, None)
    return _written(merged, [*others, replace(author, fields=mine_now)])


def _conflict(manager: Manager, path: Path) -> Cause:
    who = f'conflict with "{manager.name}"'
    if manager.subresource:
        who += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update":
        who += f" using {manager.api_version}"
    return Cause(dotted(path), who, "FieldManagerConflict")


def _merge(kind: Kind, live: Any, wanted: Any, names: tuple[str, ...]) -> Any:
    how = shape(kind, names, wanted)
    if isinstance(wanted, dict) and not how.is_atomic:
        merged = dict(live) if isinstance(live, dict) else {}
        for name, value in wanted.items():
            merged[name] = _merge(kind, merged.get(name), value, (*names, name))
        return merged
    if isinstance(wanted, list) and how.keys and isinstance(live, list):
        items = {item_key(item, how.keys): item for item in live}
        for item in wanted:
            key = item_key(item, how.keys)
            items[key] = _merge(kind, items.get(key), item, (*names, "[]"))
        return list(items.values())
    if isinstance(wanted, list) and how.is_set and isinstance(live, list):
        return [*live, *(item for item in wanted if item not in live)]
    return copy.deepcopy(wanted)


def _remove(kind: Kind, body: Any, path: Path, names: tuple[str, ...] = ()) -> Any:
    """Take the field out, and what became empty by that: returns what is left, None for nothing."""
    (how, name), below = path[0], path[1:]
    if how == "f":
        if isinstance(body, dict) and name in body:
            left = _remove_below(kind, body[name], below, (*names, name))
            if left is None:
                del body[name]
            else:
                body[name] = left
        return body or None
    if not isinstance(body, list):
        return body
    keys = shape(kind, names, body).keys
    left_items = []
    for item in body:
        is_it = (key_step(item, keys) if how == "k" else value_step(item)) == (how, name)
        kept = _remove_below(kind, item, below, (*names, "[]")) if is_it else item
        if kept is not None:
            left_items.append(kept)
    return left_items or None


def _remove_below(kind: Kind, value: Any, below: Path, names: tuple[str, ...]) -> Any:
    if not below:
        return None
    return _remove(kind, copy.deepcopy(value), below, names)
