"""What reading a document gathers on its way, and how values are named in messages."""

from __future__ import annotations

from collections.abc import Mapping as Environment
from dataclasses import dataclass, field

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from halogend.config.codes import Code
from halogend.config.fields import key_of
from halogend.config.nodes import Entry, Mapping, Node, Scalar, Sequence
from halogend.config.places import Mark
from halogend.config.problems import Problem
from halogend.config.values import shown


@dataclass(frozen=True, slots=True)
class Slot:
    """A field at its place in one document: `owner`'s field `key`, at the full-form `path`."""

    owner: type[BaseModel]
    key: str
    path: str

    @property
    def info(self) -> FieldInfo:
        return next(info for name, info in self.owner.model_fields.items() if key_of(name, info) == self.key)

    @property
    def name(self) -> str:
        """How messages call it: `max_batch`, `warmup.kernels`; of the server and devices the key alone."""
        return self.path.partition("].")[2] if self.path.startswith("models[") else self.key


@dataclass(slots=True)
class Findings:
    """Faults and places, by full-form path. Written by the walk over the tree only.

    `nodes` and `slots` hold every field that was written, so that a value the schema refuses can be
    shown as it stands in the file.
    """

    file: str
    env: Environment[str, str]
    problems: list[Problem] = field(default_factory=list)
    marks: dict[str, Mark] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    slots: dict[str, Slot] = field(default_factory=dict)

    def report(self, code: Code, mark: Mark | None, path: str, message: str, hint: str = "") -> None:
        line, column = (mark.line, mark.column) if mark else (None, None)
        file = mark.file if mark and mark.file else self.file
        self.problems.append(Problem(code, message, hint, file, line, column, path))

    def saw(self, entry: Entry, path: str) -> None:
        """Remembers the place of a field: its value, or its key where the value starts on another line."""
        node = entry.node
        self.marks[path] = entry.mark if not isinstance(node, Scalar) and node.block else node.mark
        self.nodes[path] = node

    def saw_inside(self, node: Node, path: str) -> None:
        """Remembers the places of what stands inside a leaf: one alias of a list, one device's weight."""
        if isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                where = f"{path}[{index}]"
                self.marks[where], self.nodes[where] = item.mark, item
                self.saw_inside(item, where)
        elif isinstance(node, Mapping):
            for entry in node.entries:
                self.saw(entry, f"{path}.{entry.key}")
                self.saw_inside(entry.node, f"{path}.{entry.key}")


def kind(node: Node) -> str:
    """What a node is, for `found ...`."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    return shown(node.value)
