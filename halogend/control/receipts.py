"""The record of one change: what asked for it, what happened to each model, how it ended.

One mutable Receipt per change, written by the reconciler only; everything else reads `view()`.
The history is bounded; a receipt that is still open is never dropped.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from halogend.config.problems import Problem

_BRIEF_PROBLEMS = 5


class Milestone(enum.IntEnum):
    """What a caller may wait for, in order."""

    ACCEPTED = 1
    SERVING = 2
    CLOSED = 3


class Outcome(enum.StrEnum):
    UNCHANGED = "unchanged"
    APPLIED = "applied"
    PARTIALLY_APPLIED = "partially_applied"
    REJECTED = "rejected"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"


class ModelAction(enum.StrEnum):
    KEEP = "keep"
    UPDATE = "update"
    REPLACE = "replace"
    CREATE = "create"
    REMOVE = "remove"


@dataclass
class StepRecord:
    """One step of one model; `seconds` and `error` are set when it ended."""

    name: str
    began_at: float
    seconds: float | None = None
    error: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass
class ModelRecord:
    """`outcome` stays None until the model's new state serves or was given up. `load` is what a load was
    expected to read, hold and take, `receipt` the id of the one it stands in."""

    model: str
    action: ModelAction
    changes: tuple[dict[str, Any], ...] = ()
    load: dict[str, Any] | None = None
    steps: list[StepRecord] = field(default_factory=list)
    outcome: Outcome | None = None
    error: str | None = None
    is_closed: bool = False
    receipt: str = ""


@dataclass
class Receipt:
    """`trigger`: start, file, signal, api, put, rollback or resume. `actor`: who asked, as far as that is
    known. `source`: where the document came from, a file or a kept receipt. `origin`: of one that was
    handed in, the uid and generation of the object it is from."""

    id: str
    trigger: str
    actor: str
    asked_at: float
    source: str = ""
    revision: str | None = None
    previous_revision: str | None = None
    outcome: Outcome | None = None
    milestones: dict[str, float] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    models: dict[str, ModelRecord] = field(default_factory=dict)
    server_changes: tuple[dict[str, Any], ...] = ()
    origin: dict[str, Any] | None = None
    _reached: dict[Milestone, asyncio.Event] = field(default_factory=lambda: {m: asyncio.Event() for m in Milestone})

    def reach(self, milestone: Milestone, now: float) -> None:
        """Marks this milestone and every earlier one."""
        for each in Milestone:
            if each <= milestone:
                self.milestones.setdefault(each.name.lower(), now)
                self._reached[each].set()

    def has(self, milestone: Milestone) -> bool:
        return self._reached[milestone].is_set()

    async def wait(self, milestone: Milestone) -> None:
        await self._reached[milestone].wait()

    def end_waits(self) -> None:
        """Nothing more will come of it: nobody waits for a milestone that was never reached."""
        for event in self._reached.values():
            event.set()

    def brief(self) -> dict[str, Any]:
        """JSON-ready: what a line about it needs; `problems` are the first few of `problem_count`."""
        changed = [each for each in self.models.values() if each.action is not ModelAction.KEEP]
        return {
            "receipt": self.id,
            "outcome": self.outcome,
            "trigger": self.trigger,
            "actor": self.actor,
            "source": self.source,
            "revision": None if self.revision is None else self.revision[:12],
            "problem_count": len(self.problems),
            "problems": [problem.view() for problem in self.problems[:_BRIEF_PROBLEMS]],
            "models": [
                {"model": each.model, "action": each.action, "outcome": each.outcome, "error": each.error}
                for each in changed
            ],
        }

    def view(self) -> dict[str, Any]:
        """JSON-ready; the shape that HTTP, the command line and the log share."""
        return {
            "id": self.id,
            "outcome": self.outcome,
            "trigger": self.trigger,
            "actor": self.actor,
            "source": self.source,
            "origin": self.origin,
            "revision": self.revision,
            "previous_revision": self.previous_revision,
            "asked_at": self.asked_at,
            "milestones": dict(self.milestones),
            "problems": [problem.view() for problem in self.problems],
            "server_changes": list(self.server_changes),
            "models": [
                {
                    "model": record.model,
                    "action": record.action,
                    "outcome": record.outcome,
                    "error": record.error,
                    "changes": list(record.changes),
                    "load": record.load,
                    "steps": [
                        {"name": s.name, "began_at": s.began_at, "seconds": s.seconds, "error": s.error, **s.detail}
                        for s in record.steps
                    ],
                }
                for record in self.models.values()
            ],
        }


class Receipts:
    """The bounded history, newest last. Single writer: the reconciler.

    `earlier` are those of the runs before, oldest first: ids go on counting from them, and from `last`.
    `dropped` is told the id of each one that goes.
    """

    def __init__(
        self,
        keep: int = 200,
        clock: Callable[[], float] = time.time,
        earlier: Iterable[Receipt] = (),
        last: int = 0,
        dropped: Callable[[str], None] | None = None,
    ) -> None:
        self._keep = keep
        self._clock = clock
        self._held = OrderedDict((receipt.id, receipt) for receipt in earlier)
        self._next = 1 + max([last, *(number_of(each) for each in self._held)])
        self._dropped = dropped

    def open(self, trigger: str, actor: str, source: str = "") -> Receipt:
        receipt = Receipt(id=f"r{self._next}", trigger=trigger, actor=actor, asked_at=self._clock(), source=source)
        self._next += 1
        self._held[receipt.id] = receipt
        self._drop_oldest_closed()
        return receipt

    def get(self, receipt_id: str) -> Receipt | None:
        return self._held.get(receipt_id)

    def all(self) -> tuple[Receipt, ...]:
        return tuple(self._held.values())

    def _drop_oldest_closed(self) -> None:
        surplus = len(self._held) - self._keep
        for receipt in [r for r in self._held.values() if r.has(Milestone.CLOSED)][: max(0, surplus)]:
            del self._held[receipt.id]
            if self._dropped is not None:
                self._dropped(receipt.id)


def number_of(receipt_id: str) -> int:
    """`r12` -> 12; 0 for what is no receipt's id."""
    digits = receipt_id.removeprefix("r")
    return int(digits) if receipt_id.startswith("r") and digits.isdecimal() and digits.isascii() else 0
