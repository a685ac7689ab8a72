"""A document made of several files: how they travel as one, and how they become one tree.

Files are merged in the order of their names: mappings key by key, and the lists of models, devices and
keys one behind the other. Anything else that stands in two of them is an error with both places. Knows
texts and trees; where the files lie, and what a field means, is others' business.

    a run of bytes that no YAML text can be:  NUL, a name, a line end, and JSON: [[name, text as latin-1], ...]
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from halogend.config import tree
from halogend.config.codes import Code
from halogend.config.nodes import Entry, Mapping, Node, Scalar, Sequence
from halogend.config.problems import Problem
from halogend.config.values import shown

_MAGIC = b"\0halogend-files/1\n"
_JOINED = frozenset({"models", "devices", "server.auth.keys"})
_IN_EACH = "apiVersion"  # so that each file can be checked by itself


@dataclass(frozen=True, slots=True)
class Part:
    """One file: its name within the directory, and its bytes."""

    name: str
    data: bytes


def pack(parts: Iterable[Part]) -> bytes:
    """The files as one run of bytes."""
    return _MAGIC + json.dumps([[part.name, part.data.decode("latin-1")] for part in parts]).encode()


def unpack(data: bytes) -> tuple[Part, ...] | None:
    """The files, in the order of their names; None for what is no pack. Raises ValueError for a broken one."""
    if not data.startswith(_MAGIC):
        return None
    try:
        found = json.loads(data[len(_MAGIC) :])
        parts = [Part(name, text.encode("latin-1")) for name, text in found]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("the pack of files is broken") from error
    if not all(isinstance(part.name, str) and part.name.isprintable() for part in parts):
        raise ValueError("the pack of files names one that cannot be")
    if len({part.name for part in parts}) != len(parts):
        raise ValueError("the pack of files holds one twice")
    return tuple(sorted(parts, key=lambda part: part.name))


def is_unfinished(data: bytes) -> bool:
    """Is this a writer's middle, and no wish? An empty text, no file at all, or an empty one among several."""
    try:
        parts = unpack(data)
    except ValueError:
        return False
    return not data.strip() if parts is None else not parts or any(not part.data.strip() for part in parts)


def read(parts: tuple[Part, ...], directory: str) -> tuple[Mapping | None, tuple[Problem, ...]]:
    """The merged root and what is wrong with the texts and with their being together. With a fault in a
    text there is no root: what that file would have said is missing."""
    total = sum(len(part.data) for part in parts)
    if total > tree.MAX_BYTES:
        text = f"the files hold {total} bytes together, over the limit of {tree.MAX_BYTES}"
        return None, (Problem(Code.TOO_LARGE, text, "", directory),)
    roots: list[Mapping] = []
    problems: list[Problem] = []
    for part in parts:
        file = f"{directory.rstrip('/')}/{part.name}"
        root, found = tree.read(part.data, file, is_part=True)
        problems += found
        if isinstance(root, Mapping):
            roots.append(root)
        elif root is not None:
            problems.append(_no_mapping(root))
    if problems:
        return None, tuple(problems)
    if not roots:
        text = "the directory holds no file *.yaml or *.yml with content"
        return None, (Problem(Code.EMPTY_DOCUMENT, text, "write a document, or restore the files", directory),)
    if sum(root.size for root in roots) > tree.MAX_VALUES:
        text = f"the files hold more than {tree.MAX_VALUES} values together"
        return None, (Problem(Code.TOO_LARGE, text, "look for aliases that expand", directory),)
    merged = roots[0]
    for root in roots[1:]:
        merged = _merged(merged, root, "", problems)
    return merged, tuple(problems)


def _merged(first: Mapping, second: Mapping, path: str, problems: list[Problem]) -> Mapping:
    entries = {entry.key: entry for entry in first.entries}
    for entry in second.entries:
        there = entries.get(entry.key)
        if there is None:
            entries[entry.key] = entry
            continue
        where = f"{path}.{entry.key}".lstrip(".")
        both = _together(there, entry, where, problems)
        if both is None:
            problems.append(_twice(there, entry))
        else:
            entries[entry.key] = Entry(there.key, there.mark, both)
    size = first.size + second.size - 1
    return Mapping(tuple(entries.values()), first.mark, first.block, size, max(first.depth, second.depth))


def _together(first: Entry, second: Entry, path: str, problems: list[Problem]) -> Node | None:
    """Both values as one; None where there can be but one."""
    one, other = first.node, second.node
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return _merged(one, other, path, problems)
    if isinstance(one, Sequence) and isinstance(other, Sequence) and path in _JOINED:
        size = one.size + other.size - 1
        return Sequence((*one.items, *other.items), one.mark, one.block, size, max(one.depth, other.depth))
    if path == _IN_EACH and isinstance(one, Scalar) and isinstance(other, Scalar) and one.value == other.value:
        return one
    return None


def _twice(first: Entry, second: Entry) -> Problem:
    there = first.mark
    message = f"the key {shown(second.key)} stands in two files; first at {there.file}:{there.line}:{there.column}"
    mark = second.mark
    return Problem(Code.DUPLICATE_KEY, message, "keep one of them", mark.file, mark.line, mark.column)


def _no_mapping(root: Node) -> Problem:
    mark = root.mark
    message = "a file of a document is a mapping of keys to values"
    hint = "start with apiVersion, or with a key of the document"
    return Problem(Code.WRONG_TYPE, message, hint, mark.file, mark.line, mark.column)
