"""The policies that are held beside each other, as limits of one and the same scheduler."""

from __future__ import annotations

from dataclasses import dataclass, replace

from halogend.sched.blocks import BlockPool
from halogend.sched.layout import KvLayout
from halogend.sched.limits import LongLane, SchedLimits
from halogend.sched.scheduler import Scheduler

FULL = KvLayout((None,))


@dataclass(frozen=True, slots=True)
class Machine:
    """What every policy has alike: `blocks` of KV memory that can be held, `max_batch` places. A step
    computes at most `step_tokens`, as many of one request, and up to `paced_tokens` where its time is
    bounded besides: the engine does the same."""

    blocks: int
    max_batch: int
    step_tokens: int = 256
    paced_tokens: int = 512

    def scheduler(self, limits: SchedLimits) -> Scheduler:
        return Scheduler(limits, self.pool(), FULL)

    def pool(self) -> BlockPool:
        return BlockPool(self.blocks + 1, self.blocks + 1)

    def first_come(self, max_queue: int) -> SchedLimits:
        """First come, first served: no lanes, no pacing, no watermarks; a fixed budget of tokens a step."""
        return replace(in_order(self.lanes(max_queue, long=None)), step_tokens=self.step_tokens, max_gap_s=0.0)

    def lanes(self, max_queue: int, long: LongLane | None) -> SchedLimits:
        """The defaults of the document, with this long lane."""
        return SchedLimits(
            max_batch=self.max_batch,
            max_queue=max_queue,
            queue_timeout_s=0.0,
            request_timeout_s=0.0,
            prefill_chunk_tokens=self.step_tokens,
            step_tokens=max(self.step_tokens, self.paced_tokens),
            long=long,
        )


def in_order(limits: SchedLimits) -> SchedLimits:
    """First come, first served on the same machine, with steps as large and as long as under `limits`: what is
    left of the difference is policy."""
    return replace(limits, long=None, prefill_timeout_s=0.0, watermarks=None, min_free_ratio=0.0)
