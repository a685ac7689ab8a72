"""A step while it is planned, and once it is on its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from halogend.sched.request import Sequence
from halogend.sched.step import StepItem


@dataclass(slots=True)
class Draft:
    """How many positions of whom, and what is left of the budget."""

    budget: int
    counts: dict[Sequence, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InFlight:
    """A plan that was given out and whose result is due."""

    number: int
    rows: tuple[tuple[Sequence, StepItem], ...]


def take_item(sequence: Sequence, count: int) -> StepItem:
    """The next `count` positions of `sequence`, which count as computed from now on."""
    start, end, known = sequence.computed, sequence.computed + count, len(sequence.tokens)
    samples = end == known + sequence.pending
    item = StepItem(
        id=sequence.request.id,
        slot=sequence.slot,
        start=start,
        tokens=tuple(sequence.tokens[start:end]),
        from_slot=end > known,
        blocks=sequence.blocks,
        samples=samples,
    )
    sequence.computed = end
    sequence.pending += samples
    return item
