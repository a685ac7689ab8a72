"""The moments of a change at which something can go wrong: those of the code itself, a step's beginning and end."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import halogend.control
from halogend.control.house import House
from halogend.control.receipts import ModelRecord, StepRecord

Action = Callable[[], object]


class Moments:
    """`seen` are the steps of changes that began, in order. An action may raise: then it is the step that failed."""

    def __init__(self, monkeypatch: Any) -> None:
        self.seen: list[str] = []
        self._actions: dict[tuple[str, str], Action] = {}
        real = House.moment

        @contextmanager
        def moment(house: House, record: ModelRecord | None, name: str) -> Iterator[StepRecord]:
            with real(house, record, name) as step:
                is_of_a_change = record is not None or name == "validate"
                if is_of_a_change:
                    self._reach(name, "began")
                yield step
                if is_of_a_change:
                    self._reach(name, "done")

        monkeypatch.setattr(House, "moment", moment)

    def on(self, step: str, phase: str, action: Action) -> None:
        """Once, when a step of that name next comes there: "began" or "done"."""
        self._actions[step, phase] = action

    def clear(self) -> list[tuple[str, str]]:
        """What never came."""
        left = list(self._actions)
        self._actions.clear()
        self.seen.clear()
        return left

    def _reach(self, step: str, phase: str) -> None:
        if phase == "began":
            self.seen.append(step)
        action = self._actions.pop((step, phase), None)
        if action is not None:
            action()


def steps_in_code() -> set[str]:
    """The name of every step that convergence takes, from its source."""
    found = set()
    for path in Path(halogend.control.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="step" | "moment"), args=[_, ast.Constant(value=str(name))]):
                    found.add(name)
    return found
