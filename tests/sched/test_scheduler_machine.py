from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.sched_world import VOCAB, World, make_limits

from halogend.sched.layout import KvLayout
from halogend.sched.limits import LongLane, SchedLimits, Watermarks
from halogend.sched.request import ANYBODY, Caller
from halogend.sched.step import StepPlan

LAYOUTS = [(None,), (16,), (1, 40), (None, 20), (None, None, 5, 5, 33)]
LOGICAL = 10  # blocks of the pool for each table

limits = st.builds(
    make_limits,
    max_batch=st.integers(1, 6),
    max_queue=st.integers(0, 6),
    queue_timeout_s=st.sampled_from([0.0, 3.0]),
    request_timeout_s=st.sampled_from([0.0, 30.0]),
    prefill_chunk_tokens=st.sampled_from([0, 1, 7, 16, 64]),
    step_tokens=st.sampled_from([1, 16, 40, 256]),
    max_queue_tokens=st.sampled_from([0, 0, 100]),
    prefill_timeout_s=st.sampled_from([0.0, 0.3]),
    max_gap_s=st.sampled_from([0.0, 0.25]),
    long=st.sampled_from([None, LongLane(20, 1), LongLane(60, 2)]),
    watermarks=st.sampled_from([None, Watermarks(), Watermarks(0.3, 0.6)]),
    min_free_ratio=st.sampled_from([0.0, 0.2]),
)
callers = st.builds(
    Caller,
    key=st.sampled_from(["", "a", "b"]),
    weight=st.sampled_from([1.0, 3.0]),
    klass=st.sampled_from(["", "", "", "high"]),
)


def seconds(plan: StepPlan) -> float:
    return 0.02 + 0.01 * sum(item.count for item in plan.items)


class SchedulerAgainstNaive(RuleBasedStateMachine):
    """Any order of arrivals, steps, aborts, failures, time, new limits and pool sizes: what comes
    out is what generating each request alone would give, every request ends exactly once, and nobody
    holds or lacks a block that its windows do not or do reach."""

    @initialize(limits=limits, depth=st.sampled_from([0, 1]), windows=st.sampled_from(LAYOUTS))
    def start(self, limits: SchedLimits, depth: int, windows: tuple[int | None, ...]) -> None:
        self.limits = limits
        self.total = 1 + LOGICAL * len(windows)
        self.world = World(limits, blocks=self.total, depth=depth, layout=KvLayout(windows))
        self.world.step_s = seconds
        self.plain = _is_plain(limits)  # first come, first served so far

    @rule(
        prompt_tokens=st.integers(1, 90),
        max_tokens=st.integers(1, 60),
        stop_ids=st.frozensets(st.integers(0, VOCAB - 1), max_size=4),
        caller=st.one_of(st.just(ANYBODY), callers),
    )
    def add(self, prompt_tokens: int, max_tokens: int, stop_ids: frozenset[int], caller: Caller) -> None:
        self.plain = self.plain and caller == ANYBODY
        refused = self.world.add(prompt_tokens, max_tokens, stop_ids, caller)
        chunk = self.limits.request_step_tokens
        needed = self.world.layout.blocks_for_request(prompt_tokens + max_tokens - 1, chunk)
        if needed > self.world.pool.capacity:
            assert refused == "kv_too_small"
        elif refused is not None:
            assert refused == "queue_full"
            assert self.world.scheduler.stats.waiting >= (0 if self.limits.max_queue_tokens else self.limits.max_queue)

    @rule(prompt_tokens=st.integers(1, 20), max_tokens=st.integers(30, 100), count=st.integers(2, 5))
    def crowd(self, prompt_tokens: int, max_tokens: int, count: int) -> None:
        """Short prompts, long answers: they are admitted together and run out of blocks together."""
        for _ in range(count):
            self.add(prompt_tokens, max_tokens, frozenset(), ANYBODY)

    @rule(count=st.integers(1, 60))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.world.step()

    @precondition(lambda self: self.world.alive)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.world.abort(data.draw(st.sampled_from(self.world.alive)))

    @precondition(lambda self: self.world.alive)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.world.failing = frozenset({data.draw(st.sampled_from(self.world.alive))})
        self.world.step()
        self.world.failing = frozenset()

    @rule(seconds=st.sampled_from([0.5, 2.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.end(self.world.scheduler.expire(self.world.now))

    @rule(limits=limits)
    def update(self, limits: SchedLimits) -> None:
        self.limits = limits
        self.plain = self.plain and _is_plain(limits)
        self.world.scheduler.update(limits)

    @rule(share=st.floats(0.4, 1.0))
    def resize(self, share: float) -> None:
        while self.world.in_flight:
            self.world.apply()
        limit, before = int(share * self.total), self.world.scheduler.stats
        self.world.resize(limit)
        if before.blocks_used < limit:
            assert self.world.scheduler.stats.preemptions == before.preemptions

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "world"):
            self.world.scheduler.audit()
            if self.plain:
                assert self.world.first_seen == sorted(self.world.first_seen), "someone was overtaken in the queue"

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain()


def _is_plain(limits: SchedLimits) -> bool:
    return limits.long is None and limits.watermarks is None


class TestBriefly(SchedulerAgainstNaive.TestCase):
    settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestAtLength(SchedulerAgainstNaive.TestCase):
    settings = settings(max_examples=500, stateful_step_count=60, deadline=None)
