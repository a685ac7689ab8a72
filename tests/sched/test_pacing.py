"""What a step is expected to take, and how much of a prompt fits."""

from __future__ import annotations

import math
import random

import pytest

from halogend.sched.pacing import Pacer, StepWork

COSTS = {"base": 0.03, "row": 0.001, "context": 2e-6, "prompt": 0.0008, "depth": 4e-7}


def seconds(work: StepWork, costs: dict[str, float] = COSTS) -> float:
    return (
        costs["base"]
        + costs["row"] * work.rows
        + costs["context"] * work.context
        + costs["prompt"] * work.prompt
        + costs["depth"] * work.depth
    )


def some_work(draw: random.Random) -> StepWork:
    rows, prompt = draw.randint(0, 64), draw.choice([0, 0, draw.randint(16, 300)])
    return StepWork(rows, rows * draw.randint(50, 2000), prompt, prompt * draw.randint(0, 4000))


def taught(noise: float = 0.0, steps: int = 400, seed: int = 5) -> Pacer:
    draw, pacer = random.Random(seed), Pacer()
    for _ in range(steps):
        work = some_work(draw)
        pacer.learn(work, seconds(work) * draw.uniform(1 - noise, 1 + noise))
    return pacer


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_linear_machine_is_found(noise: float) -> None:
    draw, pacer = random.Random(6), taught(noise)
    for _ in range(50):
        work = some_work(draw)
        assert pacer.seconds(work) == pytest.approx(seconds(work), rel=0.02 + 2 * noise)


def test_a_machine_that_becomes_slower_is_found_again() -> None:
    draw, pacer = random.Random(6), taught()
    slow = {name: 3 * cost for name, cost in COSTS.items()}
    for _ in range(300):
        work = some_work(draw)
        pacer.learn(work, seconds(work, slow))
    work = StepWork(16, 8000, 200, 20_000)
    assert pacer.seconds(work) == pytest.approx(seconds(work, slow), rel=0.1)


@pytest.mark.parametrize("start", [0, 100, 30_000])
@pytest.mark.parametrize("allowed_s", [0.005, 0.1, 2.0])
def test_as_many_tokens_as_fit_and_not_one_more(start: int, allowed_s: float) -> None:
    pacer = taught()
    count = pacer.tokens_within(allowed_s, start)
    assert pacer.prompt_seconds(count, start) <= allowed_s * (1 + 1e-9)
    assert pacer.prompt_seconds(count + 1, start) > allowed_s


def test_no_cost_is_learnt_below_zero() -> None:
    """Steps whose times say nothing about their work."""
    draw, pacer = random.Random(1), Pacer()
    for _ in range(200):
        pacer.learn(some_work(draw), draw.uniform(0.01, 0.5))
        assert pacer.seconds(StepWork()) >= 0
        assert pacer.prompt_seconds(64, 1000) >= 0


def test_one_step_out_of_line_changes_little() -> None:
    pacer, work = taught(), StepWork(8, 4000, 128, 6400)
    pacer.learn(work, 60.0)
    assert pacer.seconds(work) < 3 * seconds(work)


def test_steps_that_take_longer_than_expected_leave_a_margin() -> None:
    calm, rough = taught(), taught(noise=0.4)
    work = StepWork(rows=8, context=4000)
    _, calm_s = calm.allowance(work, 0.25, 4096)
    _, rough_s = rough.allowance(work, 0.25, 4096)
    assert rough_s < 0.9 * calm_s


def test_prompts_go_on_beside_streams_that_take_all_of_the_gap_and_on_a_machine_that_is_rough() -> None:
    crowd = StepWork(rows=400, context=40_000)
    calm, rough = taught(), taught(noise=0.4)
    for step in range(300):
        rough.learn(crowd, seconds(crowd) * (3 if step % 20 == 0 else 1))
    assert seconds(crowd) > 0.25
    for pacer in (calm, rough):
        _, left_s = pacer.allowance(crowd, 0.25, 4096)
        assert left_s == 0.25 / 4


def test_until_something_is_known_chunks_are_small_beside_streams() -> None:
    pacer = Pacer()
    beside, seconds_left = pacer.allowance(StepWork(rows=3, context=90), 0.25, 4096)
    alone, _ = pacer.allowance(StepWork(), 0.25, 4096)
    assert (beside, seconds_left) == (64, math.inf)
    assert alone == 256


def test_without_a_gap_to_keep_the_tokens_alone_count() -> None:
    assert taught().allowance(StepWork(rows=3, context=90), 0.0, 777) == (777, math.inf)


def test_a_step_of_unknown_time_teaches_nothing() -> None:
    pacer = Pacer()
    for _ in range(10):
        pacer.learn(StepWork(prompt=64, depth=2000), 0.0)
    assert not pacer.trusted


def test_a_machine_that_is_slower_for_everything_is_believed_within_a_few_steps() -> None:
    draw, pacer = random.Random(7), taught()
    for _ in range(30):
        work = StepWork(rows=16, context=draw.randint(800, 1600))
        pacer.learn(work, 3 * seconds(work))
    assert pacer.seconds(StepWork(16, 1200, 64, 64 * 100)) == pytest.approx(
        3 * seconds(StepWork(16, 1200, 64, 64 * 100)), rel=0.15
    )


def test_what_prompts_cost_is_not_forgotten_over_streams_alone_on_a_machine_of_changing_speed() -> None:
    draw, pacer = random.Random(8), taught()
    for step in range(2000):
        work = StepWork(rows=16, context=draw.randint(800, 1600))
        pacer.learn(work, seconds(work) * (1, 3)[step // 100 % 2])
    slow = pacer.seconds(StepWork(16, 1200)) / seconds(StepWork(16, 1200))
    assert pacer.prompt_seconds(64, 1000) / slow == pytest.approx(
        64 * COSTS["prompt"] + COSTS["depth"] * 64 * 1032, rel=0.2
    )


def test_rare_slow_steps_leave_a_margin_too() -> None:
    """One in twenty takes twice as long: within a window that is what steps beside streams must allow for."""
    pacer, work = taught(), StepWork(rows=8, context=4000)
    for step in range(300):
        pacer.learn(work, seconds(work) * (2 if step % 20 == 0 else 1))
    _, left_s = pacer.allowance(work, 0.25, 4096)
    assert left_s < 0.25 / 1.8 - seconds(work)


def test_a_machine_that_stays_as_it_is_becomes_the_usual_one() -> None:
    """However long it runs: the factor for now comes back to one."""
    draw, pacer = random.Random(9), taught()
    for _ in range(8000):
        work = some_work(draw)
        pacer.learn(work, 3 * seconds(work) * draw.uniform(0.8, 1.2))
    assert pacer.slowness == pytest.approx(1.0, abs=0.15)
