"""How many sequence-steps a second the scheduler does; run with `-m slow -s` to see the figure."""

from __future__ import annotations

import random
import time

import pytest

from halogend.sched.blocks import BlockPool
from halogend.sched.layout import KvLayout
from halogend.sched.limits import SchedLimits
from halogend.sched.request import Request
from halogend.sched.scheduler import Scheduler
from halogend.sched.step import StepResult


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("requests", "blocks", "prompt_tokens", "windows"),
    [
        (100_000, 8192, 256, [None]),
        (20_000, 120, 16, [None]),
        (100_000, 8192, 256, [None, 32, 32, 32, 32, 32]),
        (20_000, 300, 16, [None, 32, 32]),
    ],
    ids=["roomy", "preempting", "sliding", "sliding-preempting"],
)
def test_synthetic_requests(
    requests: int, blocks: int, prompt_tokens: int, windows: list[int | None], capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(11)
    limits, layout = SchedLimits(64, 512, 0.0, 0.0, 0, 2048), KvLayout(tuple(windows))
    scheduler = Scheduler(limits, BlockPool(blocks, blocks), layout)
    max_tokens = 128 if blocks == 8192 else 256
    added = ended = rows = steps = 0
    started = time.perf_counter()
    while ended < requests:
        while added < requests and scheduler.stats.waiting < 256:
            prompt = (added, *(1,) * (draw.randint(1, prompt_tokens) - 1))  # nobody shares a block
            assert scheduler.add(Request(added, prompt, draw.randint(1, max_tokens), frozenset({2})), 0.0) is None
            added += 1
        plan = scheduler.schedule(float(steps))
        assert plan is not None
        sampled = tuple((item.id, draw.randint(3, 99)) for item in plan.items if item.samples)
        ended += len(scheduler.apply(StepResult(plan.number, sampled)).ended)
        rows += len(plan.items)
        steps += 1
    elapsed = time.perf_counter() - started
    scheduler.audit()
    assert scheduler.stats.blocks_used == 0
    assert (scheduler.stats.preemptions > 0) == (blocks < 8192)
    with capsys.disabled():
        print(
            f"\n{requests} requests, {blocks} blocks, {len(windows)} tables: {rows} sequence-steps in {steps} steps,"
            f" {scheduler.stats.preemptions} preemptions, {elapsed:.1f} s, {rows / elapsed:,.0f} sequence-steps/s"
        )
