"""How fragmentation is counted."""

from __future__ import annotations

import pytest
from support.sched_world import World, make_limits

from halogend.sched.fragmentation import Fragmentation, measure, runs, scattered, unwritten
from halogend.sched.layout import KvLayout


def test_runs_are_positions_in_blocks_that_lie_in_a_row() -> None:
    assert list(runs([5, 6, 7, 9, 3, 4], 90)) == [48, 16, 26]
    assert list(runs([5, 6, 7], 17)) == [17]
    assert list(runs([0, 0, 3, 4, 0, 5], 96)) == [32, 16]
    assert list(runs([], 0)) == []


def test_unwritten_slots_are_counted_once_for_each_block() -> None:
    assert unwritten([([1, 2], 20), ([3], 16)]) == pytest.approx(12 / 48)
    assert unwritten([([1, 2], 32), ([1, 2, 4], 40)]) == pytest.approx(8 / 48)
    assert unwritten([([1, 2, 3], 5)]) == pytest.approx(43 / 48)
    assert unwritten([([0, 0, 3], 40)]) == pytest.approx(8 / 16)
    assert unwritten([]) == 0


def test_a_block_that_two_share_is_as_full_as_the_fuller_has_it() -> None:
    assert unwritten([([1], 6), ([1, 2], 32)]) == pytest.approx(10 / 32)
    assert unwritten([([1], 6), ([1], 9)]) == pytest.approx(7 / 16)


def test_only_long_sequences_and_short_runs_are_scattered() -> None:
    held = [(list(range(10, 18)), 128), (list(range(100, 108)), 120), ([1, 3], 32)]
    assert scattered(held, long_tokens=64, run_tokens=128) == pytest.approx(120 / 248)
    assert scattered(held) == 0
    assert scattered([([0] * 70 + [8, 2], 72 * 16)]) == 0, "what slides is as long as its window"


def test_of_everything_that_runs() -> None:
    world = World(make_limits(step_tokens=2048), blocks=256, layout=KvLayout((None, 40)))
    assert measure(world.scheduler.running) == Fragmentation(0.0, 0.0)
    world.add(1030, 30)
    world.add(20, 30)
    for _ in range(10):
        world.step()
    found = measure(world.scheduler.running)
    assert 0 < found.internal < 0.1
    assert found.external < 0.01
    world.drain()
