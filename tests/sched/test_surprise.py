"""How slow everything is now, and how far single steps go astray."""

from __future__ import annotations

import pytest

from halogend.sched.surprise import Surprise


def told(*ratios: float) -> Surprise:
    surprise = Surprise()
    for ratio in ratios:
        surprise.learn(ratio)
    return surprise


def test_a_machine_as_expected_leaves_no_margin() -> None:
    surprise = told(*[1.0] * 400)
    assert (surprise.slowness, surprise.margin) == (1.0, 1.0)


def test_the_worst_counts_while_little_is_known() -> None:
    assert told(1.0, 1.7, 1.0).margin == 1.7


def test_rare_slow_steps_count_until_they_have_left_the_window() -> None:
    ratios = [2.0 if step % 20 == 0 else 1.0 for step in range(300)]
    assert told(*ratios).margin > 1.6
    assert told(*ratios, *[1.0] * 256).margin == pytest.approx(1.0, abs=0.01)


def test_one_slow_step_in_many_is_left_out() -> None:
    assert told(*[1.0] * 99, 3.0, *[1.0] * 100).margin < 1.05


def test_what_lasts_is_slowness_and_no_margin() -> None:
    surprise = told(*[1.0] * 300, *[2.0] * 400)
    assert surprise.slowness == pytest.approx(2.0, rel=0.01)
    assert surprise.margin < 1.1


def test_no_single_step_says_more_than_four_times() -> None:
    surprise = told(*[1.0] * 100, 1000.0)
    assert surprise.slowness <= 1.3
    assert told(1000.0).margin == 3.0


def test_slowness_settles_without_changing_what_is_expected() -> None:
    surprise = told(*[1.0] * 100, *[2.0] * 50)
    before, factor = surprise.slowness, 1.0
    for _ in range(500):
        factor *= surprise.settle()
    assert surprise.slowness * factor == pytest.approx(before)
    assert surprise.slowness == pytest.approx(1.0, abs=0.01)
