"""Who holds which field: the sets behind `metadata.managedFields`, and their form on the wire (FieldsV1).

A path is a tuple of steps: `("f", name)` into a map, `("k", key)` to an item of a keyed list (key: canonical JSON),
`("v", value)` to a member of a set. A set of paths holds leaves; an item of a keyed list stands in it too, as itself.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from support.kube.kinds import Kind
from support.kube.shapes import item_key, shape

Step = tuple[str, str]
Path = tuple[Step, ...]
Fields = frozenset[Path]

UNOWNED = {
    "namespace", "name", "uid", "creationTimestamp", "generation", "resourceVersion", "managedFields", "selfLink",
    "generateName", "deletionTimestamp", "deletionGracePeriodSeconds",
}  # fmt: skip


def key_step(item: Any, keys: tuple[str, ...]) -> Step:
    return "k", json.dumps(dict(item_key(item, keys)), sort_keys=True, separators=(",", ":"))


def value_step(item: Any) -> Step:
    return "v", json.dumps(item, sort_keys=True)


def leaves(kind: Kind, body: dict[str, Any]) -> dict[Path, Any]:
    """Each field that can have an owner, with its value (an item of a keyed list: None)."""
    found: dict[Path, Any] = {}
    for name, value in body.items():
        if name in {"apiVersion", "kind"}:
            continue
        if name == "metadata":
            value = {key: below for key, below in value.items() if key not in UNOWNED}  # noqa: PLW2901 a view of it
            for key, below in value.items():
                _walk(kind, below, (("f", "metadata"), ("f", key)), ("metadata", key), found)
        else:
            _walk(kind, value, (("f", name),), (name,), found)
    return found


def _walk(kind: Kind, value: Any, path: Path, names: tuple[str, ...], found: dict[Path, Any]) -> None:
    how = shape(kind, names, value)
    if isinstance(value, dict) and value and not how.is_atomic:
        for name, below in value.items():
            _walk(kind, below, (*path, ("f", name)), (*names, name), found)
    elif isinstance(value, list) and how.keys:
        for item in value:
            here = (*path, key_step(item, how.keys))
            found[here] = None
            for name, below in item.items():
                _walk(kind, below, (*here, ("f", name)), (*names, "[]", name), found)
    elif isinstance(value, list) and how.is_set:
        found |= {(*path, value_step(item)): item for item in value}
    else:
        found[path] = value


def to_wire(fields: Iterable[Path]) -> dict[str, Any]:
    """FieldsV1."""
    wire: dict[str, Any] = {}
    for path in sorted(fields):
        here = wire
        for how, name in path:
            here = here.setdefault(f"{how}:{name}", {})
        if path[-1][0] == "k":
            here["."] = {}
    return wire


def from_wire(wire: dict[str, Any]) -> Fields:
    return frozenset(_read(wire, ()))


def _read(wire: dict[str, Any], path: Path) -> Iterator[Path]:
    if "." in wire or (not wire and path):
        yield path
    for name, below in wire.items():
        if name != ".":
            how, _, rest = name.partition(":")
            yield from _read(below, (*path, (how, rest)))


def dotted(path: Path) -> str:
    """As the API's messages write it: `.spec.template.spec.containers[name="x"].image`."""
    text = ""
    for how, name in path:
        if how == "f":
            text += f".{name}"
        elif how == "k":
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(name).items()) + "]"
        else:
            text += f"[={name}]"
    return text


def is_key(path: Path) -> bool:
    """Whether it is what its item is told apart by: it stays as long as the item does."""
    return len(path) > 1 and path[-2][0] == "k" and path[-1][1] in json.loads(path[-2][1])


def covers(fields: Iterable[Path], path: Path) -> bool:
    """Whether somebody who holds `fields` holds `path`, or something under it."""
    return any(held[: len(path)] == path for held in fields)
