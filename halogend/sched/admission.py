"""Who may come in: an estimate of what everybody will hold, and the watermarks.

What a request will generate is not known, so its `max_tokens` is not reserved: a share of it is, as large
as those that ended needed on average. Requests end at different times, so what counts is not the sum of
what all will hold but its peak (the idea of R. Gong et al., "Past-Future Scheduler for LLM Serving under
SLA Guarantees", ASPLOS 2025). When the estimate was too low, somebody gives way and is recomputed.

    blocks |      /|            held by each request grows until it ends;
           |   /|/ |  /|        the sum is largest just before one of the ends
           +-----------------> steps
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool
from halogend.sched.layout import KvLayout
from halogend.sched.limits import SchedLimits, Watermarks
from halogend.sched.queue import WaitingQueue
from halogend.sched.request import Refusal, Request, Sequence
from halogend.sched.tables import BlockTables

_LEARNT_FROM = 64  # requests that count in the mean
_HYSTERESIS = 0.02


class LearntShare:
    """The share of max_tokens that requests generate. 0 until one has ended: blocks go to who comes."""

    def __init__(self) -> None:
        self._mean = 0.0
        self._count = 0

    def learn(self, generated: int, max_tokens: int) -> None:
        self._count = min(self._count + 1, _LEARNT_FROM)
        self._mean += (generated / max_tokens - self._mean) / self._count

    def positions(self, sequence: Sequence) -> int:
        """How many it will have computed when it ends, probably; at least one more block than now."""
        request = sequence.request
        likely = len(request.prompt) + int(self._mean * request.max_tokens)
        return min(max(likely, sequence.known + BLOCK_TOKENS), request.positions_at_most)

    def tokens(self, sequence: Sequence) -> int:
        """How many steps' worth of work it still is: positions to compute."""
        return self.positions(sequence) - sequence.computed


class Growth(NamedTuple):
    """What a request will hold: `blocks` soon, `rate` more a step, until it ends in `steps`. Who ends first
    comes first."""

    steps: int
    blocks: int
    rate: float


class Forecast:
    """What those who run will hold at the peak. Good until somebody gives way."""

    def __init__(self, growths: Iterable[Growth]) -> None:
        self._growths = sorted(growths)  # who ends first comes first

    def add(self, growth: Growth) -> None:
        insort(self._growths, growth)

    def peak_with(self, growth: Growth) -> float:
        """The most blocks that will be held, if this one comes in too."""
        growths = self._growths.copy()
        insort(growths, growth)
        return _peak(growths)

    def peak(self) -> float:
        """The most that will be held by those who run."""
        return _peak(self._growths)


def _peak(growths: list[Growth]) -> float:
    """`growths` in the order in which they end."""
    blocks, rate, peak = 0.0, 0.0, 0.0
    for steps, soon, more in reversed(growths):
        blocks += soon
        rate += more
        peak = max(peak, blocks + rate * steps)
    return peak


@dataclass(frozen=True, slots=True)
class Gates:
    """Which of the two watermarks is closed: each closes at its mark and opens again below it by the hysteresis."""

    soft: bool = False
    hard: bool = False

    def at(self, use: float, marks: Watermarks) -> Gates:
        """What becomes of them when so large a share of the pool is used."""
        soft, hard = marks.soft - _HYSTERESIS * self.soft, marks.hard - _HYSTERESIS * self.hard
        return Gates(soft=use >= soft, hard=use >= hard)


class Admission:
    """Says who fits. Single writer: the scheduler."""

    def __init__(self, limits: SchedLimits, pool: BlockPool, layout: KvLayout, tables: BlockTables) -> None:
        self._limits = limits
        self._chunk = limits.request_step_tokens
        self._pool = pool
        self._layout = layout
        self._tables = tables
        self._gates = Gates()
        self.share = LearntShare()

    def update(self, limits: SchedLimits) -> None:
        self._limits, self._chunk = limits, limits.request_step_tokens

    def refusal(self, request: Request, queue: WaitingQueue, running: int) -> Refusal | None:
        """Why it cannot even wait (kv_too_small, queue_full)."""
        needed = self.blocks_at_most(request.positions_at_most)
        if needed > self._pool.capacity:
            return Refusal(
                "kv_too_small",
                f"the request needs {needed} blocks of KV memory for {request.positions_at_most} tokens"
                f" and the pool has {self._pool.capacity}",
            )
        limits, waiting, tokens = self._limits, len(queue), queue.tokens
        if waiting >= limits.max_queue + max(0, limits.max_batch - running):
            return Refusal("queue_full", f"{waiting} requests wait already (max_queue)")
        if waiting and 0 < limits.max_queue_tokens < tokens + len(request.prompt):
            return Refusal("queue_full", f"prompts of {tokens} tokens wait already (max_queue_tokens)")
        return None

    def in_order(self, line: list[Sequence]) -> list[Sequence]:
        """Who is to be asked first in a line whose head never ran. Above the soft watermark those that need least
        pass the head, as far as the shares of the keys allow: its own key's, and of others whose turn comes before
        the head's would be over. The rest follow in their order."""
        if len(line) < 2 or not self._gates.soft:
            return line
        head, caller = line[0], line[0].request.caller
        over = head.tag + head.charged_tokens / caller.weight

        def place(sequence: Sequence) -> tuple[bool, float]:
            may_pass = sequence.tag <= over or sequence.request.caller.key == caller.key
            return not may_pass, self.share.tokens(sequence) if may_pass else 0.0

        return sorted(line, key=place)

    def look(self) -> None:
        """The use of the pool has changed: the gates open or close."""
        self._gates = self._gates_at(self._tables.used)

    def forecast(self, running: Iterable[Sequence]) -> Forecast:
        return Forecast(map(self.growth, running))

    def is_open(self, sequence: Sequence) -> bool:
        """Whether the watermarks let it in."""
        return self._under_watermarks(self.growth(sequence).blocks, self._tables.used)

    def spare(self, sequence: Sequence) -> int:
        """Blocks that it may count on besides what is held: some are kept for short requests."""
        kept = int(self._limits.min_free_ratio * self._pool.capacity) if sequence.long else 0
        return self._tables.available - kept

    def would_fit(self, sequence: Sequence, lower: list[Sequence], rest: list[Sequence]) -> bool:
        """Whether it would beside `rest`, if all who are `lower` gave way: worth their while. What they hold in common
        with `rest` or with a pin does not come back."""
        freed = self._tables.returned_by(lower)
        sequence.shared = self._tables.shared(sequence, freed)
        growth = self.growth(sequence)
        if not self._under_watermarks(growth.blocks, self._tables.used - len(freed)):
            return False
        room = self.spare(sequence) + len(freed) + sum(each.own for each in rest)
        return self.forecast(rest).peak_with(growth) <= room

    def blocks_at_most(self, positions: int) -> int:
        """The most blocks that a request of so many positions can hold."""
        return self._layout.blocks_for_request(positions, self._chunk)

    def _under_watermarks(self, wanted: int, used: int) -> bool:
        """Above the soft mark only who stays under the hard one, above the hard one nobody."""
        if (marks := self._limits.watermarks) is None:
            return True
        gates = self._gates_at(used)
        return not gates.hard and (not gates.soft or used + wanted <= marks.hard * self._pool.capacity)

    def _gates_at(self, used: int) -> Gates:
        """With so many blocks used; without watermarks nothing is closed, and nothing is remembered of them."""
        marks = self._limits.watermarks
        return Gates() if marks is None else self._gates.at(used / self._pool.capacity, marks)

    def growth(self, sequence: Sequence) -> Growth:
        """What it will hold and nobody holds already, as far as can be told."""
        known, final = sequence.known, self.share.positions(sequence)
        steps, blocks = max(1, final - known), sequence.held
        chunk = min(max(sequence.ahead, 1), self._chunk)
        if sequence.computed < known - 1 or not blocks:
            blocks = max(blocks, self._layout.blocks_for_request(known, chunk))
        last = self._layout.blocks_for_request(final, chunk)
        return Growth(steps, blocks - sequence.shared, max(0, last - blocks) / steps)
