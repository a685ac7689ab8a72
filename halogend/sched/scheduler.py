"""Every request from its arrival to its one end; what a step computes is planned in `planner`.

Steps may overlap: `schedule` may be called once more before the step before it was applied (depth
1). A token that is still on its way is then named by its slot, and what comes back for a request
that has ended meanwhile is dropped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Row

from halogend.sched.admission import Admission
from halogend.sched.blocks import BlockPool
from halogend.sched.draft import Draft, InFlight, take_item
from halogend.sched.errors import InvariantError
from halogend.sched.lanes import Lanes
from halogend.sched.layout import KvLayout
from halogend.sched.limits import SchedLimits
from halogend.sched.pacing import Pacer, work_of
from halogend.sched.places import Places
from halogend.sched.planner import Planner
from halogend.sched.request import End, Events, Refusal, Request, Resized, Sequence
from halogend.sched.spans import Spans, SpanStep
from halogend.sched.stats import ReuseStats, SchedStats
from halogend.sched.step import StepItem, StepPlan, StepResult
from halogend.sched.tables import BlockTables
from halogend.sched.taken import Taken

_MAX_IN_FLIGHT = 2


class Scheduler:
    """Owns every request from `add` to its one end. Called from one thread; `now` is in seconds
    on any steady clock. Raises InvariantError when what it is told cannot be."""

    def __init__(self, limits: SchedLimits, pool: BlockPool, layout: KvLayout) -> None:
        self._limits = limits
        self._pool = pool
        self._tables = BlockTables(pool, layout)
        self._lanes = Lanes(limits)
        self._places = Places(self._tables, self._lanes)
        self._queue, self._running = self._places.queue, self._places.running
        self._admission = Admission(limits, pool, layout, self._tables)
        self._pacer = Pacer()
        self._planner = Planner(limits, self._places, self._admission, self._lanes, self._pacer)
        self._spans = Spans(self._places, self._admission, self._lanes, self._pacer, layout)
        self._taken = Taken(self._places, self._admission)
        self._in_flight: deque[InFlight] = deque()
        self._steps = 0
        self._prompt_tokens = 0
        self._generated_tokens = 0
        self._tables.set_policy(limits.eviction)

    # --- requests come and go -----------------------------------------------------------------

    def add(self, request: Request, now: float) -> Refusal | None:
        """Takes a request into the queue, or says why not (queue_full, kv_too_small)."""
        if request.id in self._taken:
            raise InvariantError(f"request {request.id} was added twice")
        refusal = self._admission.refusal(request, self._queue, len(self._running))
        if refusal is None:
            self._taken.take(request, now, self._limits.eviction.priority_of(request.caller.klass))
        return refusal

    def abort(self, request_id: int) -> None:
        """Frees everything the request holds, at once. Unknown ids are ignored: it may just have ended."""
        self._taken.abort(request_id)

    def expire(self, now: float) -> tuple[End, ...]:
        """Ends whoever has waited or lived too long (queue_timeout, request_timeout)."""
        ended: list[End] = []
        if limit := self._limits.request_timeout_s:
            ended += self._taken.fail(self._taken.older(now - limit), "request_timeout")
        if limit := self._limits.queue_timeout_s:
            ended += self._taken.fail([s for s in self._taken.older(now - limit) if not s.admitted], "queue_timeout")
        return tuple(ended)

    # --- live changes ---------------------------------------------------------------------------

    def update(self, limits: SchedLimits) -> None:
        """From the next step on. Nobody who runs or waits already is turned away."""
        self._limits = limits
        self._tables.set_policy(limits.eviction)
        self._lanes.update(limits)
        self._admission.update(limits)
        self._planner.update(limits)
        for sequence in self._taken:
            sequence.most_blocks = self._blocks_at_most(sequence.request)
        self._places.rearrange(limits.eviction)

    def resize(self, limit: int) -> Resized:
        """Moves the pool's limit (in blocks). Whoever can never fit again ends (kv_too_small), who comes last
        gives way while more is held than there will be room for, and what lies behind the limit moves
        below it. Not while a step is in flight: it may still write there (InvariantError)."""
        if self._in_flight:
            raise InvariantError("the pool cannot be resized while a step is in flight")
        misfits = [s for s in self._taken if self._blocks_at_most(s.request) > limit - 1]
        ended = self._taken.fail(misfits, "kv_too_small")
        self._tables.yield_pins(limit - 1)
        while self._tables.used > limit - 1:
            self._places.give_way(self._running.victim)
        moves = self._tables.resize(limit)
        return Resized(moves, tuple(ended))

    # --- a step -----------------------------------------------------------------------------------

    def schedule(self, now: float) -> StepPlan | None:
        """The next step, or None when nothing can be computed now."""
        if len(self._in_flight) >= _MAX_IN_FLIGHT:
            raise InvariantError(f"{len(self._in_flight)} steps are in flight already")
        self._places.now = now
        self._tables.tick(now)
        draft = self._planner.plan()
        return self._commit(draft) if draft.counts else None

    def apply(self, result: StepResult) -> Events:
        """Takes in what the oldest step in flight brought."""
        if not self._in_flight or self._in_flight[0].number != result.number:
            raise InvariantError(f"the result of step {result.number} is not the one that is due")
        rows = self._in_flight.popleft().rows
        self._learn(rows, result.seconds)
        reused = self._places.take_reused()
        tokens, failed = dict(result.sampled), dict(result.failed)
        sampled: list[tuple[int, int]] = []
        ended: list[End] = []
        for sequence, item in rows:
            request_id = sequence.request.id
            if sequence.ended:
                continue
            if item.blocks is sequence.blocks:  # else it gave way, and begins again
                self._settle(sequence, item, request_id in failed)
            if request_id in failed:
                ended += self._taken.fail([sequence], failed[request_id])
            elif item.samples:
                if request_id not in tokens:
                    raise InvariantError(f"step {result.number} brought no token for request {request_id}")
                token = tokens[request_id]
                sampled.append((request_id, token))
                if reason := self._take(sequence, token):
                    self._taken.complete(sequence)
                    ended.append(End(request_id, reason))
        return Events(tuple(sampled), tuple(ended), reused)

    # --- many steps at once ---------------------------------------------------------------------------

    def span(self, most: int) -> int:
        """How many of the next steps, at most `most`, only move everybody in the batch by one token, with no
        decision to take: 0 when the next one must be planned. For simulated time."""
        return 0 if self._in_flight else self._spans.steps(self._limits, most)

    def apply_span(self, steps: Row[SpanStep], tokens: Mapping[int, Row[int]]) -> None:
        """Does what as many calls of `schedule` and `apply` would, for steps that `span` has just allowed.
        `tokens` has those that each of the batch gets, one a step, none of which ends it."""
        self._spans.advance(steps, tokens)
        self._steps += len(steps)
        self._generated_tokens += len(steps) * len(self._running)

    # --- what others may read ---------------------------------------------------------------------

    @property
    def stats(self) -> SchedStats:
        return SchedStats(
            running=len(self._running),
            waiting=len(self._queue),
            blocks_total=self._pool.capacity,
            blocks_used=self._tables.used,
            preemptions=self._places.preemptions,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated_tokens,
            running_long=sum(s.long and s.ahead > 1 for s in self._running),
            waiting_long=self._queue.long_count,
        )

    @property
    def reuse(self) -> ReuseStats:
        return self._tables.reuse

    @property
    def pins_end_s(self) -> float | None:
        """When the next pin's time is over: the `schedule` that comes then or later lets it go. None without pins."""
        return self._tables.pins_end_s

    @property
    def running(self) -> Iterable[Sequence]:
        """Who has a place in the batch; to read only."""
        return iter(self._running)

    @property
    def has_requests(self) -> bool:
        return bool(self._taken)

    @property
    def blocks_reserved(self) -> int:
        """What those who run will probably hold at the peak besides what they hold: a guess, which may be more than
        there is."""
        running = list(self._running)
        return max(0, math.ceil(self._admission.forecast(running).peak()) - sum(each.own for each in running))

    @property
    def positions_promised(self) -> int:
        """The most positions that any one request may compute that was taken: a pool that does not
        hold as many cannot finish it."""
        return max((s.request.positions_at_most for s in self._taken), default=0)

    def take_queue_waits(self) -> tuple[float, ...]:
        """How long each request waited that was admitted since the last call, in seconds."""
        return self._places.take_waits()

    def audit(self) -> None:
        """Raises InvariantError unless every request and block is in exactly one place."""
        self._places.audit(self._taken.ids)

    def _blocks_at_most(self, request: Request) -> int:
        return self._admission.blocks_at_most(request.positions_at_most)

    # --- a step: out and back -----------------------------------------------------------------------

    def _commit(self, draft: Draft) -> StepPlan:
        items = tuple(self._item(sequence, count) for sequence, count in draft.counts.items())
        plan = StepPlan(number=self._steps, items=items, copies=self._tables.take_copies())
        self._in_flight.append(InFlight(plan.number, tuple(zip(draft.counts, items, strict=True))))
        self._steps += 1
        return plan

    def _item(self, sequence: Sequence, count: int) -> StepItem:
        item = take_item(sequence, count)
        fresh = min(sequence.computed, len(sequence.request.prompt)) - sequence.prompt_counted
        if fresh > 0:
            sequence.prompt_counted += fresh
            self._prompt_tokens += fresh
        return item

    def _settle(self, sequence: Sequence, item: StepItem, failed: bool) -> None:
        """What its share of a step left in memory is for others too, or for nobody."""
        if failed:
            self._tables.distrust(sequence)
        else:
            self._tables.written(sequence, item.start + item.count)

    def _learn(self, rows: tuple[tuple[Sequence, StepItem], ...], seconds: float) -> None:
        """What the step took teaches how large the next may be, and which prompts are slow."""
        if seconds <= 0:
            return
        work = work_of(item for _, item in rows)
        self._pacer.learn(work, seconds)
        for sequence, item in rows:
            if item.count > 1:
                sequence.prefill_s += seconds * item.count / work.prompt
                if sequence.slot >= 0:
                    sequence.long = self._lanes.is_long(sequence)

    def _take(self, sequence: Sequence, token: int) -> str | None:
        """A token has arrived; the reason if it was the last."""
        sequence.tokens.append(token)
        sequence.pending -= 1
        self._generated_tokens += 1
        if token in sequence.request.stop_ids:
            return "stop"
        return "length" if len(sequence.tokens) - len(sequence.request.prompt) >= sequence.request.max_tokens else None
