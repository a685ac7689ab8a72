"""Where blocks lie: in rows, with room to grow, and joined again when they are free."""

from __future__ import annotations

from itertools import pairwise

import pytest
from support.sched_world import World, make_limits

from halogend.sched.blocks import BlockPool
from halogend.sched.buddy import RUN_BLOCKS, BuddyRuns
from halogend.sched.errors import InvariantError


def in_a_row(blocks: list[int]) -> bool:
    return all(second == first + 1 for first, second in pairwise(blocks))


def fill(pool: BlockPool) -> list[int]:
    return pool.take(pool.free_count, ahead=0)


def test_two_that_grow_in_turn_do_not_interleave() -> None:
    pool = BlockPool(256, 256)
    one, other = pool.take(1), pool.take(1)
    for _ in range(2 * RUN_BLOCKS):
        one += pool.take(1, after=one[-1])
        other += pool.take(1, after=other[-1])
    for blocks in (one, other):
        assert sum(second != first + 1 for first, second in pairwise(blocks)) <= 2
    pool.audit([one, other])


def test_what_will_be_long_is_put_where_there_is_place_for_all_of_it() -> None:
    pool = BlockPool(512, 512)
    prompt = pool.take(32, ahead=100)
    others = [pool.take(9) for _ in range(5)]
    for _ in range(3):
        prompt += pool.take(32, after=prompt[-1], ahead=8)
        others.append(pool.take(9))
    assert in_a_row(prompt)
    assert all(in_a_row(blocks) for blocks in others)


def test_small_ones_fill_the_small_holes() -> None:
    pool = BlockPool(64, 64)
    held = fill(pool)
    pool.release([10, 11, *range(32, 40)])
    assert pool.take(2, ahead=0) == [10, 11]
    assert pool.in_rows() == RUN_BLOCKS
    assert pool.take(3, ahead=1) == [32, 33, 34]
    assert len(held) == 63


@pytest.mark.parametrize("backwards", [False, True])
def test_what_comes_back_is_one_run_again(backwards: bool) -> None:
    pool = BlockPool(64, 64)
    blocks = [block for block in fill(pool) if block >= 32]
    assert pool.in_rows() == 0
    for block in sorted(blocks, reverse=backwards):
        pool.release([block])
    assert pool.in_rows() == 32
    assert pool.take(32) == blocks


def test_the_room_behind_is_left_to_others_when_nothing_else_is() -> None:
    pool = BlockPool(32, 32)
    one = pool.take(9, ahead=7)  # 16-24, and room up to 31
    rest = pool.take(15, ahead=0)
    assert pool.free_count == 7
    assert pool.in_rows(one[-1]) == 7
    assert pool.in_rows() == 0
    assert pool.take(2, ahead=0) == [30, 31], "the far half goes first"
    assert pool.take(1, after=one[-1]) == [25]
    assert sorted(pool.take(4, ahead=0)) == [26, 27, 28, 29], "nobody waits"
    assert len(rest) == 15
    assert pool.free_count == 0


def test_what_is_freed_behind_a_growing_sequence_becomes_its_room() -> None:
    pool = BlockPool(32, 32)
    blocks = fill(pool)
    pool.release([8])
    growing = pool.take(1)
    assert growing == [8]
    pool.release([9, 10, 20, 21])
    assert pool.take(2, ahead=0) == [20, 21]
    assert pool.take(3 - 1, after=8) == [9, 10]
    assert len(blocks) == 31


def test_the_room_of_one_that_ended_is_free_for_all() -> None:
    pool = BlockPool(64, 64)
    blocks = pool.take(33, ahead=31)
    rest = fill(pool)
    pool.release(rest)
    pool.keep(blocks[-1])
    pool.release(blocks)
    pool.audit([], blocks[-1:])
    pool.forget(blocks[-1])
    assert pool.in_rows() == 63 - 7  # all but blocks 1 to 7


def test_a_block_whose_neighbour_is_free_completes_a_run() -> None:
    pool = BlockPool(16, 16)
    fill(pool)
    pool.release([6])
    assert pool.completes_buddy(7)
    assert not any(pool.completes_buddy(block) for block in (1, 5, 8))


def test_the_other_half_of_block_one_is_never_free() -> None:
    assert not BlockPool(16, 16).completes_buddy(1)


def test_a_row_is_moved_as_a_row() -> None:
    pool = BlockPool(128, 128)
    high = pool.take(33, ahead=0)
    assert min(high) >= 64
    pool.release(high[20:])
    del high[20:]
    moves = pool.resize(64)
    moved = [moves[block] for block in high]
    assert in_a_row(moved)
    pool.audit([moved])
    assert pool.take(1, after=moved[-1]) == [moved[-1] + 1]


def test_a_pool_that_grows_joins_what_it_had_and_what_is_new() -> None:
    pool = BlockPool(64, 40)
    assert pool.in_rows() == 32
    pool.resize(64)
    assert pool.in_rows() == 56
    assert pool.take(32, ahead=0) == list(range(32, 64))


def test_audit_finds_a_run_that_is_not_joined() -> None:
    runs = BuddyRuns(16)
    runs.put(4, 8)
    assert list(runs.blocks()) == [4, 5, 6, 7]
    runs._order_at[4] = runs._order_at[6] = 2
    with pytest.raises(InvariantError):
        list(runs.blocks())
    runs = BuddyRuns(16)
    runs.put(4, 5)
    runs._counts[0] = 0
    with pytest.raises(InvariantError, match="counted"):
        list(runs.blocks())


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda pool, held: pool._rooms.update({held: held + 17}), "free twice"),
        (lambda pool, held: pool._rooms.update({held - 1: held + 1}), "free and in use"),
        (lambda pool, held: pool._open.claim(32, 1), "lost"),
        (lambda pool, held: pool._rooms.update({40: 40}), "no holder"),
        (lambda pool, held: setattr(pool, "_cached", 1), "counted wrongly"),
        (lambda pool, held: pool._kept.__setitem__(40, 1), "in no index"),
        (lambda pool, held: pool._counts.__setitem__(held, 2), "as often as"),
    ],
)
def test_audit_finds(tamper, message: str) -> None:
    pool = BlockPool(64, 64)
    held = pool.take(2)
    pool.audit([held])
    tamper(pool, held[-1])
    with pytest.raises(InvariantError, match=message):
        pool.audit([held])


def test_a_prompt_in_chunks_lies_in_one_row_whoever_comes_between() -> None:
    world = World(make_limits(prefill_chunk_tokens=64, step_tokens=128, max_batch=8), blocks=256)
    world.add(900, 4)
    for _ in range(14):
        world.add(20, 30)
        world.step()
    (prompt,) = (sequence for sequence in world.scheduler.running if sequence.request.id == 0)
    assert len(prompt.blocks[0]) > 40
    assert in_a_row(prompt.blocks[0])
    world.drain()
