"""What is wrong with a document, said so that the reader can mend it without another look-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. `line` and `column` count from 1 and are None where no place is known.

    `path` is the field in the full form, such as `models[0].device`; empty for the whole document.
    `hint` says what to do; it may be empty only where the message already says so.
    """

    code: str
    message: str
    hint: str = ""
    file: str = ""
    line: int | None = None
    column: int | None = None
    path: str = ""

    def view(self) -> dict[str, Any]:
        """JSON-ready, every key always present."""
        return {
            "code": str(self.code),
            "message": self.message,
            "hint": self.hint,
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "path": self.path,
        }

    def __str__(self) -> str:
        """`file:line:column: CODE: message (hint)`, without the parts that are not known."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part not in {"", None})
        text = f"{place}: {self.code}: {self.message}" if place else f"{self.code}: {self.message}"
        return f"{text} ({self.hint})" if self.hint else text


_FAR = 1 << 60


def in_order(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Each problem once, by file and place in it; what has no place comes last, by code."""

    def place(problem: Problem) -> tuple[Any, ...]:
        where = (problem.file, problem.line, problem.column or _FAR) if problem.line else ()
        return not problem.line, where, problem.code, problem.path

    return tuple(sorted(dict.fromkeys(problems), key=place))
