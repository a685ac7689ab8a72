"""Sliding tables step by step: what is given back when, and to whom."""

from __future__ import annotations

import pytest
from support.sched_world import World, make_limits

from halogend.sched.layout import KvLayout

TWO = KvLayout((None, 20))


def zeros(world: World) -> list[int]:
    """Of each table of the oldest request: how many of its blocks were given back."""
    (oldest, *_) = world.scheduler._running
    return [table.count(0) for table in oldest.blocks]


def test_a_block_goes_back_with_the_step_after_which_nothing_sees_it() -> None:
    world = World(make_limits(), blocks=64, layout=TWO)
    world.add(30, 40)
    world.step()  # positions 0-29: the next, 30, sees from 11 on
    assert zeros(world) == [0, 0]
    for _ in range(4):
        world.step()
    assert zeros(world) == [0, 0]  # the next is 34 and sees 15, the last of block 0
    world.step()
    assert zeros(world) == [0, 1]
    for _ in range(16):
        world.step()
    assert zeros(world) == [0, 2]
    assert world.scheduler.stats.blocks_used == 4 + 2
    world.drain()


def test_one_step_ahead_a_block_waits_for_the_result() -> None:
    world = World(make_limits(), blocks=64, layout=TWO, depth=1)
    world.add(30, 40)
    for _ in range(6):
        world.step()
    assert zeros(world) == [0, 0]
    world.step()
    assert zeros(world) == [0, 1]
    world.drain()


def test_what_is_behind_the_window_serves_others() -> None:
    """Three long requests run together where a tenth of one would fit if all were kept."""
    layout = KvLayout((16,))
    world = World(make_limits(prefill_chunk_tokens=16), blocks=1 + 3 * 3 + 1, layout=layout)
    for _ in range(3):
        world.add(200, 300)
    for _ in range(40):
        world.step()
    assert world.scheduler.stats.running == 3
    world.drain()
    assert world.scheduler.stats.preemptions == 0


def test_a_request_is_refused_by_what_it_can_hold_at_once() -> None:
    limits = make_limits(prefill_chunk_tokens=16)
    world = World(limits, blocks=1 + 13 + 4, layout=TWO)  # 200 positions: 13 blocks, and 35 in a row: 4
    assert world.add(150, 51) is None
    assert world.add(150, 59) is None  # 208 positions fill 13
    assert world.add(150, 60) == "kv_too_small"
    assert World(limits, blocks=13 + 4, layout=TWO).add(150, 51) == "kv_too_small"
    world.drain()


def test_larger_chunks_need_more_and_still_end_with_less() -> None:
    """Taken with small chunks, then allowed large ones: a chunk is cut to the blocks there are."""
    world = World(make_limits(prefill_chunk_tokens=16), blocks=1 + 13 + 4, layout=TWO)
    world.add(150, 51)
    world.scheduler.update(make_limits(prefill_chunk_tokens=128, step_tokens=128))
    world.depth = 1
    world.drain()
    assert world.outcomes[0].end.reason == "length"


def test_a_result_of_an_earlier_run_frees_nothing_of_the_present_one() -> None:
    """A prompt gives way with a chunk in flight and runs again in the next step."""
    world = World(make_limits(prefill_chunk_tokens=48), blocks=20, layout=KvLayout((16,)), depth=1)
    world.add(100, 4)
    world.step()
    (sequence,) = world.scheduler._running
    world.scheduler._places.give_way(sequence)
    world.step()  # plans positions 0-47 once more, then takes in the result of the first time
    assert [(item.start, item.count) for plan in world.plans for item in plan.items] == [(0, 48)] * 2
    assert zeros(world) == [0]
    world.step()
    assert zeros(world) == [2]
    world.drain()


@pytest.mark.parametrize("depth", [0, 1])
def test_preempted_requests_come_back_with_new_tables(depth: int) -> None:
    world = World(make_limits(), blocks=1 + 2 * 5, layout=TWO, depth=depth)
    world.add(5, 74)
    world.add(5, 74)
    world.drain()
    assert world.scheduler.stats.preemptions > 0
