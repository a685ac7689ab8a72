"""What the scheduler says to the runner, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepItem:
    """One request's share of a step: positions `start` to `start + count - 1`.

    `tokens` are the values known when the step was planned. With `from_slot` one more position
    follows, whose value is whatever was sampled last into `slot` (it was not known yet).
    `blocks` has a list for each table of the layout, in its order; a list covers every position up
    to the last one of this item, in order, where 0 stands for a block that lies behind the window of
    its table from position `start` on. The runner only reads them, and only during the step.
    `samples`: the logits of the last position are wanted.
    """

    id: int
    slot: int
    start: int
    tokens: tuple[int, ...]
    from_slot: bool
    blocks: Sequence[Sequence[int]]
    samples: bool

    @property
    def count(self) -> int:
        return len(self.tokens) + self.from_slot


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Never empty. Order of `items` is the order of rows in tensors and in the result. `copies` are blocks
    to copy, old to new, before anything else of the step happens."""

    number: int
    items: tuple[StepItem, ...]
    copies: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """`sampled` has one (id, token) for each item with `samples`, in the plan's order. `failed`
    holds requests whose own step went wrong (their id and why); the others are unaffected. `seconds`
    is what the step took, 0 when nobody knows."""

    number: int
    sampled: tuple[tuple[int, int], ...]
    failed: tuple[tuple[int, str], ...] = ()
    seconds: float = 0.0
