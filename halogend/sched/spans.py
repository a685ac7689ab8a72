"""Many decode steps at once, where nothing is decided in between: for simulated time.

A span is what `schedule` and `apply` would do, step by step, while everybody in the batch moves by one token:
blocks fall due and fill up at the same steps and in the same order. Must never be used beside a runner,
which needs each step's plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass

from halogend.sched.admission import Admission
from halogend.sched.blocks import BLOCK_TOKENS, blocks_for
from halogend.sched.lanes import Lanes
from halogend.sched.layout import KvLayout
from halogend.sched.limits import SchedLimits
from halogend.sched.pacing import Pacer, StepWork
from halogend.sched.places import Places
from halogend.sched.request import Sequence


@dataclass(frozen=True, slots=True)
class SpanStep:
    """One step of a span: when it begins, and what it takes."""

    start_s: float
    seconds: float


class Spans:
    """Works on the scheduler's own state between two of its steps. Single writer: the scheduler."""

    def __init__(self, places: Places, admission: Admission, lanes: Lanes, pacer: Pacer, layout: KvLayout) -> None:
        self._places = places
        self._admission = admission
        self._lanes = lanes
        self._pacer = pacer
        self._layout = layout

    def steps(self, limits: SchedLimits, most: int) -> int:
        """How many steps, at most `most`, hold no decision: nobody is a prompt, comes in, ends at its max_tokens,
        is too late, or finds no block. Sequences with windows give blocks back at any step: 0."""
        running = list(self._places.running)
        if not running or self._layout.sliding or self._somebody_may_come(limits):
            return 0
        if limits.request_timeout_s or (limits.queue_timeout_s and len(self._places.queue)):
            return 0
        if any(s.ahead != 1 or s.pending for s in running):
            return 0
        most = min(most, *(s.request.max_tokens - s.generated - 1 for s in running))
        while most > 0 and self._blocks_due(running, most) > self._places.tables.available:
            most //= 2
        return max(most, 0)

    def advance(self, steps: Row[SpanStep], tokens: Mapping[int, Row[int]]) -> None:
        """`tokens` has those of each request, one a step. Not more steps than `steps` has just allowed."""
        running = list(self._places.running)
        first = [s.computed for s in running]
        self._learn(steps, len(running), sum(first))
        for sequence in running:
            sequence.tokens += tokens[sequence.request.id]
        events: dict[int, tuple[list[Sequence], list[Sequence]]] = {}  # at a step: who needs a block, whose is full
        for sequence, position in zip(running, first, strict=True):
            for place in range(-position % BLOCK_TOKENS, len(steps), BLOCK_TOKENS):
                events.setdefault(place, ([], []))[0].append(sequence)
            for place in range(-(position + 1) % BLOCK_TOKENS, len(steps), BLOCK_TOKENS):
                events.setdefault(place, ([], []))[1].append(sequence)
        starts = dict(zip((s.request.id for s in running), first, strict=True))
        for place in sorted(events):
            self._blocks(steps[place].start_s, place, events[place], starts)
        for sequence in running:
            sequence.computed += len(steps)
        self._places.now = steps[-1].start_s
        self._places.tables.tick(self._places.now)
        self._pass_by(len(steps))

    def _blocks(
        self, now: float, place: int, event: tuple[list[Sequence], list[Sequence]], starts: Mapping[int, int]
    ) -> None:
        """What step `place` of the span takes and fills."""
        short, full = event
        tables = self._places.tables
        tables.tick(now)
        for sequence in short:
            tables.extend(sequence, starts[sequence.request.id] + place + 1)
        if len(self._places.queue):
            self._admission.look()
        for sequence in full:
            tables.written(sequence, starts[sequence.request.id] + place + 1)

    def _learn(self, steps: Iterable[SpanStep], rows: int, context: int) -> None:
        for number, step in enumerate(steps):
            self._pacer.learn(StepWork(rows=rows, context=context + number * rows), step.seconds)

    def _blocks_due(self, running: Iterable[Sequence], steps: int) -> int:
        missing = sum(max(0, blocks_for(s.computed + steps) - len(s.blocks[0])) for s in running)
        return missing * self._layout.tables

    def _somebody_may_come(self, limits: SchedLimits) -> bool:
        """Into the batch before somebody leaves it."""
        queue, running = self._places.queue, self._places.running
        if not len(queue):
            return False
        return len(running) < limits.max_batch or max(queue.priorities) > running.victim.priority

    def _pass_by(self, steps: int) -> None:
        """Those who wait in the long lane were looked at once a step."""
        queue = self._places.queue
        for priority in queue.priorities:
            if queue.line(priority, long=True):
                self._lanes.pass_turns(steps)
