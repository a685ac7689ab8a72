"""What a run leaves: values only, so that the verdict is a pure function of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torture.messages import Asked, End, Judged


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which something was under way, in seconds of the epoch."""

    kind: str
    began_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Serving:
    """From `at` on, new requests were answered by a checkpoint of this kind."""

    at: float
    kind: str


@dataclass(frozen=True, slots=True)
class Peak:
    """One change: what its plan said generations would hold at the most, and what they held, by process too."""

    change: str
    planned_bytes: int
    measured_bytes: int
    held: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """At rest. `daemon_bytes` is the daemon's own anonymous and shared memory."""

    processes: int
    descriptors: int
    daemon_bytes: int


@dataclass(frozen=True, slots=True)
class Goal:
    """What was to be made, and what was."""

    what: str
    wanted: int
    made: int


@dataclass
class Evidence:
    """Filled by the session. `paths` are the checkpoints of generations; `answers` what each prompt may be answered
    with, `judged` what was made of an answer that is none of these, by (prompt, text), where the arithmetic does not
    fix every token; `acts` counts what was done by name; `rates` are requests a second by kind of checkpoint: capacity,
    and asked."""

    asked: list[Asked] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    receipts: dict[str, dict[str, Any]] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)
    servings: list[Serving] = field(default_factory=list)
    answers: dict[int, set[str]] = field(default_factory=dict)
    judged: dict[tuple[int, str], Judged] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    acts: dict[str, int] = field(default_factory=dict)
    peaks: list[Peak] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    policies: int = 0
    taken_back: int = 0
    before: Count | None = None
    after: Count | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def whole(self) -> list[Asked]:
        """Requests that were answered in full."""
        return [each for each in self.asked if each.end is End.ANSWERED]

    def is_learned(self, asked: Asked) -> bool:
        """Is it to the letter what one checkpoint answers at rest?"""
        return asked.text in self.answers.get(asked.prompt, ())
