"""A step while it is planned, and once it is on its way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.pacing import Pacer
from halogend.sched.request import Sequence
from halogend.sched.step import StepItem


@dataclass(slots=True)
class Draft:
    """How many positions of whom, and what is left for prompts: `tokens`, and `seconds` of step time.

    `prompts` are those in the batch who are more than a token behind, in its order. However little is
    left, the first prompt moves by a block.
    """

    tokens: int
    seconds: float = math.inf
    counts: dict[Sequence, int] = field(default_factory=dict)
    prompts: list[Sequence] = field(default_factory=list)
    moved: bool = False  # whether a prompt has a part in it

    @property
    def spent(self) -> bool:
        return self.tokens <= 0 or (self.moved and self.seconds <= 0)

    def left(self, sequence: Sequence) -> int:
        """Positions it could compute beyond those in this step."""
        return sequence.ahead - self.counts.get(sequence, 0)

    def prompt_count(self, sequence: Sequence, most: int, pacer: Pacer) -> int:
        """How many positions of its prompt go in; none rather than a crumb."""
        wanted = min(self.left(sequence), most - self.counts.get(sequence, 0), self.tokens)
        if self.seconds == math.inf:
            return wanted
        fits = pacer.tokens_within(self.seconds, sequence.computed + self.counts.get(sequence, 0))
        if fits < min(wanted, BLOCK_TOKENS):
            return 0 if self.moved else min(wanted, BLOCK_TOKENS)
        return min(wanted, fits)

    def take(self, sequence: Sequence, count: int, pacer: Pacer) -> None:
        """`count` more positions of a prompt."""
        already = self.counts.get(sequence, 0)
        self.counts[sequence] = already + count
        self.tokens -= count
        self.moved = True
        if self.seconds < math.inf:
            self.seconds -= pacer.prompt_seconds(count, sequence.computed + already)
            if pacer.tokens_within(self.seconds, 0) < BLOCK_TOKENS:
                self.seconds = 0.0  # nobody comes in for a crumb

    def drop(self, sequence: Sequence) -> None:
        """It gives way: no part of it is computed. What it took of the budget is not given to others."""
        self.counts.pop(sequence, None)
        if sequence in self.prompts:
            self.prompts.remove(sequence)


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
