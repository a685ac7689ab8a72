"""The tree of a document: scalars, mappings and lists with their places, and what a scalar means.

Only `true` and `false` are booleans and only plain decimal is a number; YAML 1.1's other spellings
(`yes`, `010`, `0x10`, `1_000`, `1:30`) are text, which the schema then refuses where it matters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from halogend.config.places import Mark

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,300})")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]{0,300})?(\.[0-9]{0,300})?([eE][-+]?[0-9]{1,4})?")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Scalar:
    """`value` is text, a number, a boolean or None; `plain` says it was written without quotes."""

    value: str | int | float | bool | None
    mark: Mark
    plain: bool
    size: int = 1
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    mark: Mark
    node: Node


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys are unique. `size` and `depth` count through aliases."""

    entries: tuple[Entry, ...]
    mark: Mark
    block: bool
    size: int
    depth: int

    def get(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]
    mark: Mark
    block: bool
    size: int
    depth: int


Node = Scalar | Mapping | Sequence


def plain_value(node: Node) -> Any:
    """The node as Python values, lists as tuples."""
    if isinstance(node, Mapping):
        return {entry.key: plain_value(entry.node) for entry in node.entries}
    if isinstance(node, Sequence):
        return tuple(plain_value(item) for item in node.items)
    return node.value


def resolve(text: str) -> str | int | float | bool | None:
    """What an unquoted scalar means."""
    if text in {"", "~", "null"}:
        return None
    if text in {"true", "false"}:
        return text == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and any(char.isdigit() for char in re.split("[eE]", text, maxsplit=1)[0]):
        return float(text)
    return text


def unprintable(text: str) -> re.Match[str] | None:
    """The first character no document may hold, such as NUL or a lone surrogate."""
    return _UNPRINTABLE.search(text)
