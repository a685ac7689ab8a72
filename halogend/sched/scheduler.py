"""The scheduling rule: each request's computed count chases its known count, under a token budget.

There is no prefill mode and no decode mode. A step takes the running requests (those one token
behind first, then the others, each group in order of arrival), then admits from the queue while
budget, places and blocks allow. Blocks are taken on demand; when an older request finds none, the
newest gives up its own, goes back to its place in the queue with the tokens it has, and is
recomputed. The oldest can therefore always go on, and whoever is at the head comes next: nobody
starves.

Steps may overlap: `schedule` may be called once more before the step before it was applied (depth
1). A token that is still on its way is then named by its slot, and what comes back for a request
that has ended meanwhile is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool
from halogend.sched.draft import Draft, InFlight, take_item
from halogend.sched.errors import InvariantError
from halogend.sched.layout import KvLayout
from halogend.sched.limits import SchedLimits
from halogend.sched.queue import WaitingQueue
from halogend.sched.request import End, Events, Refusal, Request, Resized, Sequence
from halogend.sched.running import RunningSet
from halogend.sched.stats import SchedStats
from halogend.sched.step import StepItem, StepPlan, StepResult
from halogend.sched.tables import BlockTables

_MAX_IN_FLIGHT = 2


class Scheduler:
    """Owns every request from `add` to its one end. Called from one thread; `now` is in seconds
    on any steady clock. Raises InvariantError when what it is told cannot be."""

    def __init__(self, limits: SchedLimits, pool: BlockPool, layout: KvLayout) -> None:
        self._limits = limits
        self._pool = pool
        self._layout = layout
        self._tables = BlockTables(pool, layout)
        self._queue = WaitingQueue()
        self._running = RunningSet()
        self._sequences: dict[int, Sequence] = {}
        self._in_flight: deque[InFlight] = deque()
        self._arrivals = 0
        self._steps = 0
        self._preemptions = 0
        self._prompt_tokens = 0
        self._generated_tokens = 0
        self._queue_waits: list[float] = []
        self._now = 0.0  # the latest that was told
        self._tables.set_policy(limits.eviction)

    # --- requests come and go -----------------------------------------------------------------

    def add(self, request: Request, now: float) -> Refusal | None:
        """Takes a request into the queue, or says why not (queue_full, kv_too_small)."""
        if request.id in self._sequences:
            raise InvariantError(f"request {request.id} was added twice")
        needed = self._blocks_at_most(request)
        if needed > self._pool.capacity:
            return Refusal(
                "kv_too_small",
                f"the request needs {needed} blocks of KV memory for {request.positions_at_most} tokens"
                f" and the pool has {self._pool.capacity}",
            )
        places = max(0, self._limits.max_batch - len(self._running))
        if len(self._queue) >= self._limits.max_queue + places:
            return Refusal("queue_full", f"{len(self._queue)} requests wait already (max_queue)")
        sequence = Sequence(request=request, order=self._arrivals, arrived_s=now, tokens=list(request.prompt))
        self._arrivals += 1
        self._sequences[request.id] = sequence
        self._queue.put(sequence)
        return None

    def abort(self, request_id: int) -> None:
        """Frees everything the request holds, at once. Unknown ids are ignored: it may just have ended."""
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._finish(sequence)

    def expire(self, now: float) -> tuple[End, ...]:
        """Ends whoever has waited or lived too long (queue_timeout, request_timeout)."""
        ended: list[End] = []
        if limit := self._limits.request_timeout_s:
            late = [s for s in (*self._running, *self._queue) if now - s.arrived_s >= limit]
            ended += self._fail(late, "request_timeout")
        if limit := self._limits.queue_timeout_s:
            late = [s for s in self._queue if not s.admitted and now - s.arrived_s >= limit]
            ended += self._fail(late, "queue_timeout")
        return tuple(ended)

    # --- live changes ---------------------------------------------------------------------------

    def update(self, limits: SchedLimits) -> None:
        """From the next step on. Nobody who runs or waits already is turned away."""
        self._limits = limits
        self._tables.set_policy(limits.eviction)

    def resize(self, limit: int) -> Resized:
        """Moves the pool's limit (in blocks). Whoever can never fit again ends (kv_too_small), the newest
        give way while more is held than there will be room for, and what lies behind the limit moves
        below it. Not while a step is in flight: it may still write there (InvariantError)."""
        if self._in_flight:
            raise InvariantError("the pool cannot be resized while a step is in flight")
        misfits = [s for s in self._sequences.values() if self._blocks_at_most(s.request) > limit - 1]
        ended = self._fail(misfits, "kv_too_small")
        while self._tables.used > limit - 1:
            self._preempt(self._running.newest)
        moves = self._tables.resize(limit)
        return Resized(moves, tuple(ended))

    # --- a step -----------------------------------------------------------------------------------

    def schedule(self, now: float) -> StepPlan | None:
        """The next step, or None when nothing can be computed now."""
        if len(self._in_flight) >= _MAX_IN_FLIGHT:
            raise InvariantError(f"{len(self._in_flight)} steps are in flight already")
        self._now = now
        self._tables.tick(now)
        draft = self._place_running()
        self._admit(draft, now)
        return self._commit(draft) if draft.counts else None

    def apply(self, result: StepResult) -> Events:
        """Takes in what the oldest step in flight brought."""
        if not self._in_flight or self._in_flight[0].number != result.number:
            raise InvariantError(f"the result of step {result.number} is not the one that is due")
        rows = self._in_flight.popleft().rows
        tokens, failed = dict(result.sampled), dict(result.failed)
        sampled: list[tuple[int, int]] = []
        ended: list[End] = []
        for sequence, item in rows:
            request_id = sequence.request.id
            if sequence.ended:
                continue
            if item.blocks is sequence.blocks and request_id not in failed:  # else it gave way, and begins again
                self._tables.written(sequence, item.start + item.count, self._now)
            if request_id in failed:
                ended += self._fail([sequence], failed[request_id])
            elif item.samples:
                if request_id not in tokens:
                    raise InvariantError(f"step {result.number} brought no token for request {request_id}")
                token = tokens[request_id]
                sampled.append((request_id, token))
                if reason := self._take(sequence, token):
                    self._finish(sequence)
                    ended.append(End(request_id, reason))
        return Events(tuple(sampled), tuple(ended))

    # --- what others may read ---------------------------------------------------------------------

    @property
    def stats(self) -> SchedStats:
        return SchedStats(
            running=len(self._running),
            waiting=len(self._queue),
            blocks_total=self._pool.capacity,
            blocks_used=self._tables.used,
            preemptions=self._preemptions,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated_tokens,
        )

    @property
    def running(self) -> Iterable[Sequence]:
        """Who has a place in the batch; to read only."""
        return iter(self._running)

    @property
    def has_requests(self) -> bool:
        return bool(self._sequences)

    @property
    def positions_promised(self) -> int:
        """The most positions that any one request may compute that was taken: a pool that does not
        hold as many cannot finish it."""
        return max((s.request.positions_at_most for s in self._sequences.values()), default=0)

    def take_queue_waits(self) -> tuple[float, ...]:
        """How long each request waited that was admitted since the last call, in seconds."""
        waits = tuple(self._queue_waits)
        self._queue_waits.clear()
        return waits

    def audit(self) -> None:
        """Raises InvariantError unless every request and block is in exactly one place."""
        places = [*self._running, *self._queue]
        if sorted(s.request.id for s in places) != sorted(self._sequences):
            raise InvariantError("a request is lost or in two places")
        self._running.audit()
        self._queue.audit()
        self._tables.audit(self._running)

    # --- planning ---------------------------------------------------------------------------------

    def _place_running(self) -> Draft:
        behind = [(s.ahead, s) for s in self._running]
        decodes = [s for ahead, s in behind if ahead == 1]
        # Decodes never eat the whole budget: a prompt always moves by a block.
        draft = Draft(budget=max(self._limits.step_tokens, len(decodes) + BLOCK_TOKENS))
        for sequence in decodes:
            if sequence.slot >= 0:
                self._place(draft, sequence, 1)
        for ahead, sequence in behind:
            if ahead > 1 and sequence.slot >= 0 and draft.budget > 0:
                self._place(draft, sequence, ahead)
        return draft

    def _admit(self, draft: Draft, now: float) -> None:
        while (sequence := self._queue.head) and len(self._running) < self._limits.max_batch and draft.budget > 0:
            # A token on its way is named by a slot that a preempted request no longer has.
            if sequence.pending or (self._running and not self._has_room(sequence)):
                return
            self._queue.remove(sequence)
            self._running.enter(sequence)
            sequence.computed = self._tables.open(sequence, now)
            if not sequence.admitted:
                sequence.admitted = True
                self._queue_waits.append(now - sequence.arrived_s)
            self._place(draft, sequence, sequence.ahead)

    def _place(self, draft: Draft, sequence: Sequence, count: int) -> None:
        """Puts up to `count` positions into the step; none if only older requests could make room."""
        count = min(count, draft.budget, self._limits.request_step_tokens)
        while (room := self._tables.room(sequence)) <= 0:
            newest = self._running.newest
            if newest is sequence:
                return
            draft.counts.pop(newest, None)
            self._preempt(newest)
        count = min(count, room)
        self._tables.extend(sequence, sequence.computed + count, self._now)
        draft.counts[sequence] = count
        draft.budget -= count

    def _has_room(self, sequence: Sequence) -> bool:
        """Whether it fits beside what the running ones will soon take: admitting it must not be
        what preempts it."""
        promised = sum(max(0, self._blocks_wanted(s) - s.held) for s in self._running)
        return self._blocks_wanted(sequence) <= self._tables.available - promised

    def _blocks_wanted(self, sequence: Sequence) -> int:
        step_tokens = min(max(sequence.ahead, 1), self._limits.request_step_tokens)
        return self._layout.blocks_for_request(sequence.positions_wanted, step_tokens)

    def _blocks_at_most(self, request: Request) -> int:
        return self._layout.blocks_for_request(request.positions_at_most, self._limits.request_step_tokens)

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

    # --- changes of state -----------------------------------------------------------------------

    def _take(self, sequence: Sequence, token: int) -> str | None:
        """A token has arrived; the reason if it was the last."""
        sequence.tokens.append(token)
        sequence.pending -= 1
        self._generated_tokens += 1
        if token in sequence.request.stop_ids:
            return "stop"
        return "length" if len(sequence.tokens) - len(sequence.request.prompt) >= sequence.request.max_tokens else None

    def _fail(self, sequences: list[Sequence], code: str) -> list[End]:
        for sequence in sequences:
            self._finish(sequence)
        return [End(s.request.id, "error", code) for s in sequences]

    def _finish(self, sequence: Sequence) -> None:
        if sequence.slot >= 0:
            self._release(sequence)
        else:
            self._queue.remove(sequence)
        sequence.ended = True
        del self._sequences[sequence.request.id]

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence)
        self._queue.put(sequence)
        self._preemptions += 1

    def _release(self, sequence: Sequence) -> None:
        self._running.leave(sequence)
        self._tables.release(sequence, self._now)
        sequence.computed = 0
