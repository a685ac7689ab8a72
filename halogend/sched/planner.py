"""The scheduling rule: each request's computed count chases its known count, under a budget.

There is no prefill mode and no decode mode. A step takes everybody in the batch who is one token behind;
what is left of its tokens and of its time goes to prompts, of the highest priority first, and there in
the order of the lanes: first who is in the batch already, then who waits. Everything else is a budget
(pacing), a filter (lanes, watermarks, the estimate) or an ordering (priority, fair share, arrival).

Blocks are taken on demand. Who finds none makes the newest of the lowest priority give way, which goes
back to the head of its class with the tokens it has and is recomputed. The first of the batch can
therefore always go on, and the head of the queue always comes in when nobody runs: nobody starves.
"""

from __future__ import annotations

import math

from halogend.sched.admission import Admission, Forecast
from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.draft import Draft
from halogend.sched.lanes import Lanes
from halogend.sched.limits import SchedLimits
from halogend.sched.pacing import Pacer, StepWork
from halogend.sched.places import Places
from halogend.sched.request import Sequence


class Planner:
    """Fills one step after the other. Single writer: the scheduler."""

    def __init__(self, limits: SchedLimits, places: Places, admission: Admission, lanes: Lanes, pacer: Pacer) -> None:
        self._limits = limits
        self._places = places
        self._queue = places.queue
        self._running = places.running
        self._tables = places.tables
        self._admission = admission
        self._lanes = lanes
        self._pacer = pacer
        self._forecast: Forecast | None = None  # of this step; None: to be made
        self._closed = False  # in this step nobody of a lower priority comes in

    def update(self, limits: SchedLimits) -> None:
        self._limits = limits

    def plan(self) -> Draft:
        """Who computes how many positions now; empty when nothing can be computed."""
        self._forecast, self._closed = None, False
        draft = self._place_decodes()
        if not len(self._running) and (head := self._queue.head) is not None and not head.pending:
            self._enter(draft, head)
        for priority in self._priorities(draft):
            self._closed |= self._place_prompts(draft, priority)
        return draft

    # --- who is one token behind ------------------------------------------------------------------

    def _place_decodes(self) -> Draft:
        decodes: list[Sequence] = []
        prompts: list[Sequence] = []
        streams = context = 0
        for sequence in self._running:
            ahead = sequence.ahead
            if ahead == 1:
                decodes.append(sequence)
                streams += 1
                context += sequence.computed
            elif ahead > 1:
                prompts.append(sequence)
        # Decodes never eat the whole budget: a prompt always moves by a block.
        most = max(self._limits.step_tokens - streams, BLOCK_TOKENS)
        work = StepWork(rows=streams, context=context)
        tokens, seconds = most, math.inf
        if prompts or len(self._queue):
            tokens, seconds = self._pacer.allowance(work, self._limits.max_gap_s, most)
        draft = Draft(tokens, seconds, prompts=prompts)
        for sequence in decodes:
            if sequence.slot >= 0 and self._make_room(draft, sequence, 1):
                draft.counts[sequence] = 1
        return draft

    # --- prompts: the lanes in turn ---------------------------------------------------------------

    def _priorities(self, draft: Draft) -> list[int]:
        if not draft.prompts and not len(self._queue):
            return []
        return sorted({*self._queue.priorities, *(s.priority for s in draft.prompts)}, reverse=True)

    def _place_prompts(self, draft: Draft, priority: int) -> bool:
        """Both lanes of one priority. Whether somebody of it waits for a place or for room. A head that waits for
        room and is due keeps newcomers of either lane out."""
        waits = False
        for long in self._turns(draft, priority):
            self._go_on(draft, priority, long=long)
            if self._let_in(draft, priority, long=long):
                waits = True
                self._closed |= self._lanes.is_due(self._queue.line(priority, long=long)[0])
        return waits

    def _turns(self, draft: Draft, priority: int) -> tuple[bool, ...]:
        """The lanes, the one first whose turn it is; who is in the batch goes before whoever comes in out of turn."""
        head = self._head(draft, priority, long=True)
        if head is None:
            return (False,)
        first = self._lanes.long_first(head, self._head(draft, priority, long=False), self._places.now)
        lines = [self._queue.line(priority, long=long) for long in (False, True)]
        due = [line[0] for line in lines if line and self._lanes.is_due(line[0])]
        if due and (comes := min(due, key=_order).long) is not first:
            self._go_on(draft, priority, long=first)
            first = comes
        return first, not first

    def _head(self, draft: Draft, priority: int, *, long: bool) -> Sequence | None:
        """Who is first in this lane: in the batch, else in the queue."""
        for sequence in draft.prompts:
            if sequence.priority == priority and sequence.long is long:
                return sequence
        line = self._queue.line(priority, long=long)
        return line[0] if line else None

    def _go_on(self, draft: Draft, priority: int, *, long: bool) -> None:
        """Who is in the batch already; of the long lane as many as have a place there."""
        places = self._lanes.long_places
        for sequence in draft.prompts.copy():
            if sequence.long is not long or sequence.priority < priority or (long and places <= 0):
                continue
            if sequence.priority == priority:
                self._place(draft, sequence)
            places -= draft.left(sequence) > 0

    def _let_in(self, draft: Draft, priority: int, *, long: bool) -> bool:
        """Who waits, as long as the step and the lane have a place. Whether the next has one and waits for room."""
        for sequence in self._candidates(draft, priority, long=long):
            if draft.spent or (long and not self._has_long_place(draft, priority)):
                return False
            if not self._may_enter(draft, sequence):
                return True
            self._enter(draft, sequence)
        return False

    def _has_long_place(self, draft: Draft, priority: int) -> bool:
        """Whether one is left in the long lane by those in the batch who come before a newcomer."""
        taken = sum(s.long and s.priority >= priority and draft.left(s) > 0 for s in draft.prompts)
        return taken < self._lanes.long_places

    def _candidates(self, draft: Draft, priority: int, *, long: bool) -> list[Sequence]:
        line = self._queue.line(priority, long=long)
        if not line or draft.spent or self._closed:
            return []
        self._admission.look()
        return (line if self._lanes.is_due(line[0]) else self._admission.in_order(line)).copy()

    # --- who comes in -------------------------------------------------------------------------------

    def _may_enter(self, draft: Draft, sequence: Sequence) -> bool:
        """Those of a lower priority give way to it if that is what it takes."""
        if sequence.pending:  # a token on its way is named by a slot that it no longer has
            return False
        if self._fits(sequence):
            return True
        if not self._may_displace(sequence):
            return False
        while self._running.victim.priority < sequence.priority:
            self._give_way(draft, self._running.victim)
            if self._fits(sequence):
                return True
        return False

    def _fits(self, sequence: Sequence) -> bool:
        if not len(self._running):
            return True
        if len(self._running) >= self._limits.max_batch:
            return False
        sequence.shared = self._tables.shared(sequence)
        if not self._admission.is_open(sequence):
            return False
        room = self._admission.spare(sequence) + sum(s.own for s in self._running)
        if sum(s.most_blocks - s.shared for s in (sequence, *self._running)) <= room:
            return True  # whatever they do: nothing to forecast
        if self._forecast is None:
            self._forecast = self._admission.forecast(self._running)
        return self._forecast.peak_with(self._admission.growth(sequence)) <= room

    def _may_displace(self, sequence: Sequence) -> bool:
        lower = [s for s in self._running if s.priority < sequence.priority]
        rest = [s for s in self._running if s.priority >= sequence.priority]
        return bool(lower) and (not rest or self._admission.would_fit(sequence, lower, rest))

    def _enter(self, draft: Draft, sequence: Sequence) -> None:
        self._places.enter(sequence)
        if self._forecast is not None:
            self._forecast.add(self._admission.growth(sequence))
        self._place(draft, sequence)
        if sequence.slot >= 0 and draft.left(sequence) > 0:
            draft.prompts.append(sequence)
        self._admission.look()

    # --- blocks ---------------------------------------------------------------------------------------

    def _place(self, draft: Draft, sequence: Sequence) -> None:
        """Puts as much of a prompt into the step as the budget and the room allow."""
        if sequence.slot < 0 or draft.spent:
            return
        count = draft.prompt_count(sequence, self._limits.request_step_tokens, self._pacer)
        if count > 0 and (count := self._make_room(draft, sequence, count)):
            draft.take(sequence, count, self._pacer)

    def _make_room(self, draft: Draft, sequence: Sequence, count: int) -> int:
        """Blocks for up to `count` more positions; for none if only who comes before it could make room."""
        planned = draft.counts.get(sequence, 0)
        if sequence.computed + planned + count <= len(sequence.blocks[0]) * BLOCK_TOKENS:
            return count
        while (room := self._tables.room(sequence) - planned) <= 0:
            victim = self._running.victim
            if victim is sequence:
                return 0
            self._give_way(draft, victim)
        count = min(count, room)
        self._tables.extend(sequence, sequence.computed + planned + count)
        return count

    def _give_way(self, draft: Draft, victim: Sequence) -> None:
        draft.drop(victim)
        self._places.give_way(victim)
        self._forecast = None
        self._admission.look()


def _order(sequence: Sequence) -> int:
    return sequence.order
