"""Which lane a prompt goes in, and which lane goes first in a step.

Short prompts pass long ones until these have waited longer for each of their tokens (highest response ratio next,
P. Brinch Hansen, 1971); and every fourth step belongs to the long lane first. So a flood of short prompts
slows a long one and never stops it.
"""

from __future__ import annotations

from halogend.sched.limits import SchedLimits
from halogend.sched.request import Sequence

_LONG_FIRST_EVERY = 4
_PATIENCE = 16  # how many may pass who waits for room, before room is kept for it


class Lanes:
    """The rules, as the limits have them. Single writer: the scheduler."""

    def __init__(self, limits: SchedLimits) -> None:
        self._limits = limits
        self._turns = 0

    def update(self, limits: SchedLimits) -> None:
        self._limits = limits

    @property
    def long_places(self) -> int:
        """How many long prompts may be computed at a time; 0 while there is no long lane."""
        return 0 if self._limits.long is None else self._limits.long.max_concurrent

    def is_long(self, sequence: Sequence) -> bool:
        """Whether what it has to compute, from its entry on, is a long prompt, or has taken too long as a short one.
        So a long one stays long until its prompt is computed."""
        if (lane := self._limits.long) is None:
            return False
        timeout_s = self._limits.prefill_timeout_s
        slow = timeout_s > 0 and sequence.prefill_s >= timeout_s
        return slow or sequence.to_compute >= lane.threshold

    def long_first(self, long: Sequence, short: Sequence | None, now: float) -> bool:
        """Asked once a step in which the long lane has something to compute, of the heads of both. Long ones go
        first in every fourth step, and whenever they have waited longer for each of their tokens."""
        self._turns += 1
        if self._turns % _LONG_FIRST_EVERY == 0 or short is None:
            return True
        return _waited_s(long, now) / len(long.tokens) > _waited_s(short, now) / len(short.tokens)

    def pass_turns(self, steps: int) -> None:
        """As if it had been asked in so many steps, in which nothing depended on it."""
        self._turns += steps

    @staticmethod
    def is_due(head: Sequence) -> bool:
        """Whether nobody may take what the head of a line waits for any more: it ran before, or was passed
        too often."""
        return head.admitted or head.passed >= _PATIENCE


def _waited_s(sequence: Sequence, now: float) -> float:
    return now - sequence.arrived_s
