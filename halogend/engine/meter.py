"""What the steps took, and when it is time to say so."""

from __future__ import annotations

from collections.abc import Iterable

from halogend.sched.fragmentation import measure
from halogend.sched.request import Events
from halogend.sched.scheduler import Scheduler
from halogend.sched.step import StepPlan
from halogend.wire.stats import EngineStats

STATS_EVERY_S = 1.0
PREFILL, DECODE = "prefill", "decode"


def step_kind(plan: StepPlan) -> str:
    """Prefill for a step that holds a prompt chunk, of any length."""
    return PREFILL if any(item.count > 1 or not item.samples for item in plan.items) else DECODE


class StepMeter:
    """Sums over all steps, and the single ones since the last snapshot. One thread."""

    def __init__(self) -> None:
        self._steps = 0
        self._sums = {PREFILL: 0.0, DECODE: 0.0}
        self._recent: list[tuple[str, float]] = []
        self._token_at: dict[int, float] = {}
        self._largest_gap_s = 0.0
        self._changed = False
        self._last: float | None = None

    def step(self, plan: StepPlan, seconds: float) -> None:
        kind = step_kind(plan)
        self._steps += 1
        self._sums[kind] += seconds
        self._recent.append((kind, seconds))
        self._changed = True

    def told(self, events: Events, ended: Iterable[int], now: float) -> None:
        """Tokens go out now: how long each request's last one is ago."""
        for request_id, _ in events.sampled:
            if (before := self._token_at.get(request_id)) is not None:
                self._largest_gap_s = max(self._largest_gap_s, now - before)
            self._token_at[request_id] = now
        for request_id in ended:
            self.forget(request_id)

    def forget(self, request_id: int) -> None:
        """After a request's last token; unknown ids are ignored."""
        self._token_at.pop(request_id, None)

    def touch(self) -> None:
        """Something else changed that a snapshot shows."""
        self._changed = True

    def due_in(self, now: float) -> float | None:
        """Seconds until the next snapshot is due, None while nothing has changed."""
        if not self._changed:
            return None
        return 0.0 if self._last is None else max(0.0, self._last + STATS_EVERY_S - now)

    def snapshot(self, scheduler: Scheduler, pool_touched_bytes: int, now: float) -> EngineStats:
        """Takes the recent steps and queue waits with it."""
        stats, reuse, fragmentation = scheduler.stats, scheduler.reuse, measure(scheduler.running)
        recent, self._recent = tuple(self._recent), []
        largest_gap_s, self._largest_gap_s = self._largest_gap_s, 0.0
        self._changed, self._last = False, now
        return EngineStats(
            running=stats.running,
            waiting=stats.waiting,
            blocks_total=stats.blocks_total,
            blocks_used=stats.blocks_used,
            blocks_cached=reuse.blocks_cached,
            blocks_pinned=reuse.blocks_pinned,
            blocks_reserved=scheduler.blocks_reserved,
            evictions=reuse.evictions,
            prefix_query_tokens=reuse.query_tokens,
            prefix_hit_tokens=reuse.hit_tokens,
            preemptions=stats.preemptions,
            prompt_tokens=stats.prompt_tokens,
            generated_tokens=stats.generated_tokens,
            steps=self._steps,
            prefill_step_s=self._sums[PREFILL],
            decode_step_s=self._sums[DECODE],
            queue_s=scheduler.take_queue_waits(),
            step_s=recent,
            pool_touched_bytes=pool_touched_bytes,
            running_long=stats.running_long,
            waiting_long=stats.waiting_long,
            internal_fragmentation=fragmentation.internal,
            external_fragmentation=fragmentation.external,
            largest_gap_s=largest_gap_s,
        )
