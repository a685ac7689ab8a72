"""Where in the file each field stands, and what reading a document brought."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from halogend.config.problems import Problem
from halogend.config.schema import Document

_MODEL_INDEX = re.compile(r"^models\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the file; both count from 1, the column in characters. `file` is set where a document
    is made of several."""

    line: int
    column: int
    file: str = ""

    @property
    def words(self) -> str:
        """For messages about another place: `line 3`, or `/etc/halogen/20-chat.yaml, line 3`."""
        return f"{self.file}, line {self.line}" if self.file else f"line {self.line}"


@dataclass(frozen=True, slots=True)
class Places:
    """The side table of a document. `marks` is by full-form path as the file has it.

    `kept_models[i]` is the index in the file of the document's i-th model: they differ in a partial
    document, whose broken models were left out.
    """

    file: str = ""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    kept_models: tuple[int, ...] | None = None

    def in_file(self, path: str) -> str:
        """The path as the file numbers it."""
        found = _MODEL_INDEX.match(path)
        if found is None or self.kept_models is None:
            return path
        return f"models[{self.kept_models[int(found[1])]}]{path[found.end() :]}"

    def mark(self, path: str) -> Mark | None:
        """The place of the field, or of the nearest thing around it that is written."""
        where = self.in_file(path)
        while where not in self.marks and where:
            where = where[: max(where.rfind("."), where.rfind("["), 0)]
        return self.marks.get(where)

    def problem(self, code: str, path: str, message: str, hint: str = "") -> Problem:
        mark = self.mark(path)
        line, column = (mark.line, mark.column) if mark else (None, None)
        file = mark.file if mark and mark.file else self.file
        return Problem(code, message, hint, file, line, column, self.in_file(path))


@dataclass(frozen=True, slots=True)
class ParseResult:
    """`document` is set exactly when there are no `problems`.

    `partial` is what could be read all the same, so that the rules find more problems at once; it is
    `document` when that is set, and is never to be applied otherwise. `places` belongs to `partial`.
    """

    document: Document | None
    partial: Document | None
    problems: tuple[Problem, ...]
    places: Places
