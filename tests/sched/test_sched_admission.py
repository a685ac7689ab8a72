"""Who comes in: the estimate, its peak, the watermarks, and the caps of the queue."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sched_world import World, make_limits

from halogend.sched.admission import Forecast, Gates, Growth, LearntShare
from halogend.sched.limits import LongLane, SchedLimits, Watermarks
from halogend.sched.request import Request, Sequence

DEPTHS = pytest.mark.parametrize("depth", [0, 1])
STOP = frozenset(range(97))  # whatever is generated first


def plain(**changes: object) -> SchedLimits:
    return make_limits(**({"max_batch": 16, "long": None, "watermarks": None, "max_gap_s": 0.0} | changes))


def running(world: World) -> set[int]:
    return {s.request.id for s in world.scheduler._running}


# --- what is not known is estimated -----------------------------------------------------------------


@DEPTHS
def test_four_requests_with_large_budgets_run_together_if_they_stop_early(depth: int) -> None:
    """A3: each may need 37 of 40 blocks, and none does."""
    world = World(plain(), blocks=41, depth=depth)
    for _ in range(4):
        world.add(20, 570, frozenset(range(40)))
    for _ in range(3):
        world.step()
    assert world.scheduler.stats.running + sum(bool(o.end) for o in world.outcomes.values()) == 4
    world.drain()
    assert world.scheduler.stats.preemptions == 0


@DEPTHS
def test_what_requests_needed_is_learnt_and_kept_for_the_next_ones(depth: int) -> None:
    """Those that go on to max_tokens: the first ones get in each other's way, later ones do not."""
    world = World(plain(), blocks=21, depth=depth)
    counts: list[int] = []
    for _ in range(3):
        for _ in range(6):
            world.add(20, 100)
        before = world.scheduler.stats.preemptions
        world.drain()
        counts.append(world.scheduler.stats.preemptions - before)
    assert counts[0] > 0
    assert counts[1:] == [0, 0]


def sequence(prompt: int, max_tokens: int, generated: int = 0) -> Sequence:
    return Sequence(Request(0, (1,) * prompt, max_tokens), 0, 0.0, [1] * (prompt + generated), prompt + generated)


def test_the_share_is_the_mean_of_those_that_ended_and_forgets() -> None:
    share = LearntShare()
    assert share.positions(sequence(100, 400)) == 116  # a block more, as nobody knows better
    for _ in range(10):
        share.learn(100, 400)
    assert share.positions(sequence(100, 400)) == 200
    assert share.positions(sequence(100, 400, generated=300)) == 416  # it has outlived the estimate
    assert share.positions(sequence(100, 400, generated=399)) == 499  # and can no longer than this
    for _ in range(400):
        share.learn(400, 400)
    assert share.positions(sequence(100, 400)) > 495


growths = st.builds(Growth, st.integers(1, 60), st.integers(0, 50), st.sampled_from([0.0, 0.0625, 0.25, 1.0]))


@given(st.lists(growths, max_size=12), growths)
def test_the_peak_is_that_of_stepping_through_all_of_them(others: list[Growth], newcomer: Growth) -> None:
    everybody = [*others, newcomer]
    peak = max(sum(each.blocks + each.rate * step for each in everybody if each.steps >= step) for step in range(1, 61))
    peak = max(peak, sum(each.blocks + each.rate for each in everybody))
    assert Forecast(others).peak_with(newcomer) == pytest.approx(peak)


def test_requests_that_end_one_after_the_other_share_the_room_of_their_ends() -> None:
    """Each will hold 10 of 30 blocks at its end, and more than three of them run."""
    world = World(plain(step_tokens=512), blocks=31)
    for _ in range(3):
        world.add(10, 150)
    world.drain()
    most = 0
    for _ in range(8):
        world.add(10, 150)
        for _ in range(25):
            world.step()
            most = max(most, world.scheduler.stats.running)
    world.drain()
    assert most >= 4
    assert world.scheduler.stats.preemptions == 0


# --- watermarks ---------------------------------------------------------------------------------------


def marked(soft: float = 0.5, hard: float = 0.8, **changes: object) -> SchedLimits:
    return plain(watermarks=Watermarks(soft, hard), step_tokens=2048, **changes)


@DEPTHS
def test_above_the_hard_mark_nobody_new_comes_in_until_two_points_below_it(depth: int) -> None:
    world = World(marked(soft=0.1), blocks=101, depth=depth)
    world.add(16 * 78, 300)
    while world.scheduler.stats.blocks_used < 80:
        world.step()
    world.add(2, 1)
    for _ in range(20):
        world.step()
        assert running(world) == {0}
    world.abort(0)
    world.drain()
    assert world.outcomes[1].tokens


def test_the_marks_have_two_points_of_hysteresis() -> None:
    world = World(marked(soft=0.4), blocks=101)
    world.add(16 * 20, 1000)
    for _ in range(4):
        world.add(16 * 14, 300)
    world.step()
    assert running(world) == {0, 1, 2, 3, 4}  # 76 blocks
    while world.scheduler.stats.blocks_used < 80:
        world.step()
    world.add(3, 1)
    world.step()
    assert 5 not in running(world)
    gates, marks = world.scheduler._admission._gates, Watermarks(0.4, 0.8)
    assert (gates.soft, gates.hard) == (True, True)
    assert [gates.at(use, marks).hard for use in (0.79, 0.77)] == [True, False]
    assert [Gates().at(use, marks).hard for use in (0.80, 0.79)] == [True, False]


def test_above_the_soft_mark_smaller_requests_come_first() -> None:
    world = World(marked(), blocks=101)
    world.add(16 * 52, 300)
    world.step()
    for prompt in (16 * 20, 16 * 40, 16, 16 * 9):
        world.add(prompt, 100)
    world.step()
    assert [item.id for item in world.plans[-1].items] == [0, 3, 4]  # 52 + 1 + 9; the 20 would pass the hard mark
    world.drain()


def test_below_the_soft_mark_they_come_in_the_order_of_arrival() -> None:
    world = World(marked(soft=0.7), blocks=101)
    world.add(16 * 20, 300)
    world.step()
    for prompt in (16 * 20, 16, 16 * 5):
        world.add(prompt, 100)
    world.step()
    assert [item.id for item in world.plans[-1].items] == [0, 1, 2, 3]


def test_a_mark_that_is_taken_away_leaves_no_order_behind() -> None:
    world = World(marked(), blocks=101)
    world.add(16 * 52, 300)
    world.step()
    world.scheduler.update(plain(step_tokens=2048))
    for prompt in (16 * 20, 16):
        world.add(prompt, 100)
    world.step()
    assert [item.id for item in world.plans[-1].items] == [0, 1, 2]


def test_a_large_request_above_the_soft_mark_is_not_passed_for_ever() -> None:
    world = World(marked(max_batch=64), blocks=101)
    draw = random.Random(2)
    for _ in range(9):
        world.add(16 * 6, draw.randint(10, 90))
    world.step()
    world.add(16 * 60, 10)
    for _ in range(400):
        while world.scheduler.stats.waiting < 10:
            world.add(16 * 3, draw.randint(10, 90))
        world.step()
        if world.outcomes[9].end:
            break
    passed = [number for number, outcome in world.outcomes.items() if number > 9 and outcome.tokens]
    assert world.outcomes[9].end
    assert len(passed) > 5


@DEPTHS
@pytest.mark.parametrize("prompt", [1, 450])
def test_the_head_always_comes_in_when_nobody_runs(depth: int, prompt: int) -> None:
    """S3: a request above every mark and reserve runs all the same, if it fits at all."""
    limits = plain(watermarks=Watermarks(0.05, 0.1), min_free_ratio=0.9, long=LongLane(100, 1))
    world = World(limits, blocks=31, depth=depth)
    world.add(prompt, 481 - prompt)
    world.add(prompt, 481 - prompt)
    assert world.add(prompt, 482 - prompt) == "kv_too_small"
    world.drain()
    assert [outcome.end.reason for outcome in world.outcomes.values()] == ["length", "length"]


def test_a_pool_full_of_long_requests_lets_a_short_one_in_between() -> None:
    """One long request at a time fits: the lanes take turns at the head of the queue."""
    world = World(plain(long=LongLane(100, 1)), blocks=31)
    for _ in range(6):
        world.add(460, 4)
    for _ in range(3):
        world.step()
    world.add(60, 2)
    ends: list[int] = []
    while world.step():
        ends += [number for number, outcome in world.outcomes.items() if outcome.end and number not in ends]
    assert ends.index(6) <= 6
    assert len(ends) == 7


# --- the queue's caps -----------------------------------------------------------------------------------


def test_the_queue_is_capped_by_requests_and_by_prompt_tokens() -> None:
    """A8."""
    world = World(plain(max_batch=1, max_queue=3, max_queue_tokens=100), blocks=64)
    world.add(10, 50)
    world.step()
    assert world.add(60, 2) is None
    assert world.add(41, 2) == "queue_full"
    assert world.add(40, 2) is None
    assert world.add(1, 2) == "queue_full"
    world.scheduler.update(plain(max_batch=1, max_queue=3))
    assert world.add(500, 2) is None
    assert world.add(1, 2) == "queue_full"
    world.drain()


def test_a_prompt_over_the_cap_is_taken_when_nobody_waits() -> None:
    world = World(plain(max_queue_tokens=100), blocks=64)
    assert world.add(500, 2) is None
    assert world.add(1, 2) == "queue_full"
    world.drain()
