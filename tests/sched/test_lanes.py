"""Long prompts beside short ones: who passes whom, how large a chunk is, and that nobody starves."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from support.sched_world import World, make_limits

from halogend.sched.lanes import Lanes
from halogend.sched.limits import LongLane, SchedLimits, Watermarks
from halogend.sched.request import Caller, Request, Sequence
from halogend.sched.step import StepPlan

DEPTHS = pytest.mark.parametrize("depth", [0, 1])
MS = 0.001


def laned(**changes: object) -> SchedLimits:
    """Prompts of 100 tokens and more are long, one at a time; a step has 64 tokens, which take next to no time."""
    return make_limits(**({"max_batch": 16, "long": LongLane(100, 1), "watermarks": None} | changes))


def step_ms(base: float, row: float, prompt_token: float, depth: float = 0.0):
    """What a step takes on a machine where everything is linear."""

    def seconds(plan: StepPlan) -> float:
        rows = sum(item.count == 1 for item in plan.items)
        chunks = [item for item in plan.items if item.count > 1]
        tokens = sum(item.count for item in chunks)
        seen = sum(item.count * (item.start + item.count / 2) for item in chunks)
        return (base + row * rows + prompt_token * tokens + depth * seen) * MS

    return seconds


def in_step(world: World, plan: int = -1) -> dict[int, int]:
    return {item.id: item.count for item in world.plans[plan].items}


def steps_until(world: World, done, most: int = 500) -> int:
    for steps in range(most):
        if done():
            return steps
        world.step()
    pytest.fail(f"not within {most} steps: {world.scheduler.stats}")


@DEPTHS
def test_short_prompts_pass_a_long_one_that_is_being_computed(depth: int) -> None:
    world = World(laned(), blocks=256, depth=depth)
    world.add(900, 2)
    world.step()
    world.add(30, 2)
    steps_until(world, lambda: world.outcomes[1].end)
    assert not world.outcomes[0].tokens
    world.drain()


def waiting(tokens: int, since_s: float) -> Sequence:
    return Sequence(Request(0, (1,) * tokens, 1), 0, since_s, [1] * tokens)


def test_a_long_prompt_goes_first_when_it_has_waited_longer_for_each_of_its_tokens() -> None:
    """Beside one of a tenth of its length that has waited a second; every fourth time whatever they waited."""
    lanes = Lanes(laned())
    asked = [lanes.long_first(waiting(1000, 20.0 - since), waiting(100, 19.0), 20.0) for since in (9, 11, 2, 2, 9, 11)]
    assert asked == [False, True, False, True, False, True]


def test_first_come_first_served_has_no_lane_to_pass_in() -> None:
    world = World(laned(long=None), blocks=256)
    world.add(900, 2)
    world.step()
    world.add(30, 2)
    steps_until(world, lambda: world.outcomes[1].tokens)
    assert world.outcomes[0].tokens


@DEPTHS
def test_a_long_prompt_moves_under_a_flood_of_short_ones(depth: int) -> None:
    """A4: every fourth step is its own; alone it would take 15 steps."""
    world = World(laned(max_batch=64), blocks=512, depth=depth)
    world.add(900, 2)

    def done() -> bool:
        while world.scheduler.stats.waiting < 20:
            world.add(60, 1)
        return bool(world.outcomes[0].end)

    assert steps_until(world, done) <= 4 * 15 + 8
    shorts = [outcome for outcome in list(world.outcomes.values())[1:] if outcome.end]
    assert len(shorts) > 30


@DEPTHS
@pytest.mark.parametrize("places", [1, 2])
def test_no_more_long_prompts_are_computed_at_once_than_the_lane_has_places(depth: int, places: int) -> None:
    limits = laned(long=LongLane(100, places), prefill_chunk_tokens=20)
    world = World(limits, blocks=512, depth=depth)
    for _ in range(5):
        world.add(300, 10)
    most = 0
    while world.step():
        most = max(most, sum(s.computed < 300 for s in world.scheduler._running))
        assert world.scheduler.stats.running_long <= places
    assert most == places
    world.check()


@DEPTHS
def test_the_rest_of_a_long_prompt_does_not_hold_up_a_short_one(depth: int) -> None:
    """A4: however little of it is left to compute, it is in the long lane."""
    world = World(laned(long=LongLane(1000, 1), prefill_timeout_s=0.0, max_gap_s=0.1), blocks=256, depth=depth)
    world.step_s = step_ms(30, 1, 1)
    world.add(20, 600)
    for _ in range(12):
        world.step()
    world.add(1040, 4)
    for _ in range(3):
        world.step()
    world.add(20, 1)
    assert steps_until(world, lambda: world.outcomes[2].tokens) <= 3 + depth
    assert not world.outcomes[1].tokens


def test_a_long_prompt_that_is_cached_is_a_short_one_once_it_is_in() -> None:
    world = World(laned(), blocks=256)
    prompt = tuple(range(90)) * 3
    for rest in ((), (1, 2, 3) * 10, (3, 2, 1) * 40):
        world.drain()
        world.ask(prompt + rest, 2)
        assert world.scheduler.stats.waiting_long == 1
        world.step()
        assert [s.long for s in world.scheduler.running] == [not rest or len(rest) > 100]


@pytest.mark.parametrize(("head", "behind"), [((90, 102), (120, 4)), ((400, 4), (90, 4))], ids=["short", "long"])
def test_who_was_passed_too_often_is_passed_by_nobody_of_the_other_lane(
    head: tuple[int, int], behind: tuple[int, int]
) -> None:
    """There is room for the one behind it, and none for it until the first ends."""
    world = World(laned(min_free_ratio=0.0), blocks=55)
    world.add(60, 4)
    world.drain()  # teaches that everybody goes on to max_tokens
    world.add(16 * 38, 150)
    while not world.outcomes[1].tokens:
        world.step()
    world.add(*head)
    (waiting,) = world.scheduler._queue
    waiting.passed = 16
    world.add(*behind)
    assert steps_until(world, lambda: 3 in world.first_seen) > 100
    assert world.first_seen == [0, 1, 2, 3]
    world.drain()


def test_a_lane_place_that_becomes_free_within_a_step_is_taken_in_it() -> None:
    world = World(laned(), blocks=512)
    world.add(100, 4)
    world.add(200, 4)
    world.step()
    world.step()
    assert in_step(world) == {0: 36, 1: 28}


@DEPTHS
def test_a_flood_of_long_prompts_does_not_hold_up_a_short_one(depth: int) -> None:
    world = World(laned(), blocks=512, depth=depth)
    for _ in range(10):
        world.add(400, 4)
    for _ in range(9):
        world.step()
    world.add(20, 1)
    assert steps_until(world, lambda: world.outcomes[10].end) <= 3 + depth


@DEPTHS
def test_a_prompt_that_takes_too_long_goes_on_in_the_long_lane(depth: int) -> None:
    world = World(laned(long=LongLane(1000, 1), prefill_timeout_s=0.3, max_gap_s=0.0), blocks=256, depth=depth)
    world.step_s = step_ms(0, 0, 2)
    world.add(900, 2)
    for _ in range(4):
        world.step()
    assert world.scheduler.stats.running_long == 1
    world.add(40, 1)
    steps_until(world, lambda: world.outcomes[1].end)
    assert not world.outcomes[0].tokens
    world.drain()


def test_a_prompt_that_waits_beside_others_is_not_slow_for_it() -> None:
    world = World(laned(long=LongLane(1000, 1), prefill_timeout_s=0.3, max_gap_s=0.0), blocks=512)
    world.step_s = step_ms(0, 0, 2)
    for _ in range(8):
        world.add(60, 2)
    while world.step():
        assert world.scheduler.stats.running_long == 0


def gaps(world: World, streams: int, prompt_tokens: int) -> float:
    """The longest step beside running streams, once the machine is known."""
    for _ in range(streams):
        world.add(30, 10_000)
    for _ in range(3 * streams):
        world.step()
    assert world.scheduler.stats.running == streams
    world.add(prompt_tokens, 1)
    number = len(world.outcomes) - 1
    longest = 0.0
    while not world.outcomes[number].end:
        before = world.now
        world.step()
        longest = max(longest, world.now - before)
    return longest


@DEPTHS
@pytest.mark.parametrize(
    ("base", "row", "prompt_token", "depth_cost"), [(20, 1, 1, 0), (50, 4, 0.3, 0.0), (5, 1, 1, 0.002)]
)
def test_the_gap_of_running_streams_is_bounded_beside_a_long_prompt(
    depth: int, base: float, row: float, prompt_token: float, depth_cost: float
) -> None:
    """A4: the chunk is what fits into the gap, on a fast machine as on a slow one, however deep the prompt."""
    limits = laned(step_tokens=4096, max_gap_s=0.2)

    def longest(limits: SchedLimits) -> float:
        world = World(limits, blocks=1800, depth=depth)
        world.step_s = step_ms(base, row, prompt_token, depth_cost)
        return gaps(world, 8, 3000)

    assert longest(limits) <= 0.2 * 1.1
    assert longest(replace(limits, max_gap_s=0.0)) > 0.4


def test_the_time_that_is_allowed_is_used() -> None:
    world = World(laned(step_tokens=4096, max_gap_s=0.2), blocks=800)
    world.step_s = step_ms(20, 1, 1)
    world.add(30, 10_000)
    for _ in range(3):
        world.step()
    for _ in range(4):
        world.add(900, 1)
    for _ in range(12):
        world.step()
    before = world.now
    world.step()
    assert world.now - before == pytest.approx(0.2, rel=0.1)


def test_nobody_comes_in_for_a_step_that_is_full() -> None:
    world = World(laned(max_batch=64, step_tokens=4096, max_gap_s=0.2), blocks=800)
    world.step_s = step_ms(20, 1, 1)
    world.add(30, 10_000)
    for _ in range(3):
        world.step()
    for _ in range(40):
        world.add(47, 50)
    for _ in range(6):
        world.step()
        assert all(s.computed for s in world.scheduler._running)
        assert world.scheduler.stats.waiting


def test_with_nobody_streaming_a_chunk_is_as_large_as_is_useful() -> None:
    world = World(laned(step_tokens=4096, max_gap_s=0.1), blocks=800)
    world.step_s = step_ms(50, 1, 1)
    for _ in range(6):
        world.add(2000, 1)
        for _ in range(5):
            world.step()
    last = [item.count for plan in world.plans[-3:] for item in plan.items]  # the last prompt, the rest of it too
    assert max(last) > 600  # its base is a sixteenth of the step


def test_a_prompt_moves_though_streams_alone_take_longer_than_the_gap() -> None:
    world = World(laned(max_gap_s=0.01), blocks=64)
    world.step_s = step_ms(50, 1, 1)
    world.add(10, 300)
    world.step()
    world.add(80, 2)
    assert steps_until(world, lambda: world.outcomes[1].end) <= 10


def test_of_two_long_prompts_the_one_of_the_higher_priority_has_the_place() -> None:
    world = World(laned(), blocks=256)
    world.add(900, 2)
    for _ in range(3):
        world.step()
    world.add(900, 2, caller=Caller(klass="high"))
    steps_until(world, lambda: world.outcomes[1].tokens)
    assert not world.outcomes[0].tokens
    world.drain()


def test_some_blocks_are_kept_for_short_requests() -> None:
    world = World(laned(min_free_ratio=0.25), blocks=41)
    world.add(10, 200)
    world.step()
    world.add(500, 2)  # 32 blocks of 40, of which 10 are kept
    world.add(90, 2)
    world.step()
    world.step()
    assert set(in_step(world)) == {0, 2}
    world.drain()


@DEPTHS
def test_a_long_prompt_that_waits_for_room_is_not_passed_for_ever(depth: int) -> None:
    world = World(laned(max_batch=8, min_free_ratio=0.0), blocks=65, depth=depth)
    draw = random.Random(3)
    for _ in range(6):
        world.add(90, draw.randint(10, 90))
    world.step()
    world.add(900, 2)  # 57 of 64 blocks

    def done() -> bool:
        while world.scheduler.stats.waiting < 12:
            world.add(90, draw.randint(10, 90))
        return bool(world.outcomes[6].tokens)

    steps_until(world, done, 2000)
    passed = [number for number, outcome in world.outcomes.items() if number > 6 and outcome.tokens]
    assert 16 <= len(passed) <= 20


@DEPTHS
def test_lanes_change_between_two_steps_and_nobody_is_lost(depth: int) -> None:
    world = World(laned(), blocks=256, depth=depth)
    for prompt in (300, 40, 500, 20, 200, 90, 700, 10):
        world.add(prompt, 6)
    rules = [
        laned(long=None),
        laned(long=LongLane(30, 3), max_gap_s=0.0),
        laned(watermarks=Watermarks(0.2, 0.4), min_free_ratio=0.5),
        laned(max_batch=2, prefill_chunk_tokens=16),
        laned(),
    ]
    for number in range(40):
        world.step()
        world.scheduler.update(rules[number % len(rules)])
        world.scheduler.audit()
    world.drain()
    assert all(outcome.end.reason == "length" for outcome in world.outcomes.values())
