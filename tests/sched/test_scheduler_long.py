"""The whole scheduler for thousands of steps on one pool, audited after each, against the naive answer."""

from __future__ import annotations

import random

import pytest
from support.sched_world import World, make_limits

from halogend.sched.layout import KvLayout
from halogend.sched.limits import LongLane, SchedLimits, Watermarks
from halogend.sched.request import Caller
from halogend.sched.step import StepPlan

BLOCKS = 256


def seconds(plan: StepPlan) -> float:
    return 0.02 + 0.001 * sum(item.count for item in plan.items)


def some_limits(draw: random.Random) -> SchedLimits:
    return make_limits(
        max_batch=draw.randint(4, 24),
        max_queue=24,
        queue_timeout_s=draw.choice([0.0, 20.0]),
        prefill_chunk_tokens=draw.choice([0, 48]),
        step_tokens=draw.choice([64, 256]),
        prefill_timeout_s=draw.choice([0.0, 0.5]),
        max_gap_s=draw.choice([0.0, 0.15]),
        long=draw.choice([None, LongLane(150, 1), LongLane(150, 2)]),
        watermarks=draw.choice([None, Watermarks(), Watermarks(0.5, 0.7)]),
        min_free_ratio=draw.choice([0.0, 0.03, 0.2]),
    )


def some_caller(draw: random.Random) -> Caller:
    return Caller(key=draw.choice("abc"), weight=draw.choice([1.0, 2.0]), klass=draw.choice(["", "", "", "high"]))


def live(world: World, draw: random.Random) -> None:
    """Between two steps: arrivals in floods and lulls, those who leave, new rules, another pool."""
    if draw.random() < 0.25 and world.scheduler.stats.waiting < 20:
        prompt = draw.choice([draw.randint(1, 40), draw.randint(1, 40), draw.randint(100, 600)])
        stops = frozenset(draw.sample(range(97), 2))
        world.add(prompt, draw.choice([3, 30, 200]), stops, some_caller(draw))
    if draw.random() < 0.01 and world.alive:
        world.abort(draw.choice(world.alive))
    if draw.random() < 0.01:
        world.scheduler.update(some_limits(draw))
    if draw.random() < 0.003:
        while world.in_flight:
            world.apply()
        world.resize(draw.randint(BLOCKS // 2, BLOCKS))


def run(steps: int, depth: int, windows: tuple[int | None, ...]) -> None:
    draw = random.Random(f"{steps} {depth} {windows}")
    world = World(some_limits(draw), blocks=BLOCKS, depth=depth, layout=KvLayout(windows))
    world.step_s = seconds
    moved = 0
    while moved < steps:
        live(world, draw)
        moved += world.step()
        world.end(world.scheduler.expire(world.now))
        world.plans.clear()
    world.drain()
    assert world.scheduler.stats.preemptions > steps // 1000


def test_a_thousand_steps() -> None:
    run(1000, 1, (None,))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("windows", [(None,), (None, 40)], ids=["full", "sliding"])
def test_twenty_thousand_steps(depth: int, windows: tuple[int | None, ...]) -> None:
    run(20_000, depth, windows)
