from __future__ import annotations

import pytest

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool, blocks_for
from halogend.sched.errors import InvariantError


def make_pool(total: int, limit: int | None = None) -> BlockPool:
    return BlockPool(total, total if limit is None else limit)


def test_blocks_for_rounds_up() -> None:
    assert [blocks_for(n) for n in (0, 1, BLOCK_TOKENS, BLOCK_TOKENS + 1)] == [0, 1, 1, 2]


def test_block_zero_is_never_handed_out() -> None:
    pool = make_pool(8)
    assert sorted(pool.take(7)) == [1, 2, 3, 4, 5, 6, 7]
    assert pool.capacity == 7
    assert pool.free_count == 0


def test_the_block_behind_comes_first() -> None:
    pool = make_pool(16)
    (first,) = pool.take(1)
    (second,) = pool.take(1, after=first)
    assert second == first + 1
    assert pool.take(3, after=second)[0] == second + 1


def test_asking_for_more_than_is_free_is_a_bug_of_the_caller() -> None:
    pool = make_pool(4)
    with pytest.raises(InvariantError, match="4 blocks"):
        pool.take(4)
    assert pool.free_count == 3


def test_a_shared_block_is_free_when_the_last_holder_lets_go() -> None:
    pool = make_pool(8)
    blocks = pool.take(2)
    pool.share(blocks[:1])
    assert [pool.references(block) for block in blocks] == [2, 1]
    pool.release(blocks)
    assert (pool.referenced_count, pool.free_count) == (1, 6)
    pool.release(blocks[:1])
    assert (pool.referenced_count, pool.free_count) == (0, 7)
    pool.audit([])


def test_a_kept_block_is_cached_until_it_is_forgotten() -> None:
    pool = make_pool(8)
    (block,) = pool.take(1)
    pool.keep(block)
    assert not pool.is_cached(block)
    pool.release([block])
    assert pool.is_cached(block)
    assert (pool.referenced_count, pool.cached_count, pool.free_count) == (0, 1, 6)
    pool.share([block])
    assert (pool.referenced_count, pool.cached_count, pool.free_count) == (1, 0, 6)
    pool.release([block])
    pool.audit([], [block])
    pool.forget(block)
    assert (pool.referenced_count, pool.cached_count, pool.free_count) == (0, 0, 7)
    pool.audit([])


def test_what_is_forgotten_while_it_is_held_is_free_when_it_is_let_go() -> None:
    pool = make_pool(8)
    (block,) = pool.take(1)
    pool.keep(block)
    pool.forget(block)
    assert pool.references(block) == 1
    pool.release([block])
    assert pool.free_count == 7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda pool, block: pool.release([block]), "given back"),
        (lambda pool, block: pool.share([block]), "shared"),
        (lambda pool, block: pool.keep(block), "kept but nobody holds it"),
        (lambda pool, block: pool.forget(block), "not kept"),
    ],
)
def test_what_cannot_be_done_to_a_free_block(call, message: str) -> None:
    pool = make_pool(4)
    (block,) = pool.take(1)
    pool.release([block])
    with pytest.raises(InvariantError, match=message):
        call(pool, block)
    pool.audit([])


@pytest.mark.parametrize("limit", [0, 5])
def test_limits_outside_the_pool(limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit {limit}"):
        make_pool(4).resize(limit)


def test_audit_compares_with_the_holders() -> None:
    pool = make_pool(8)
    held = pool.take(2)
    pool.audit([held])
    with pytest.raises(InvariantError, match="as often as they are held"):
        pool.audit([held, held])
    with pytest.raises(InvariantError, match="as often as they are held"):
        pool.audit([held[:1]])
    with pytest.raises(InvariantError, match="in one and not kept"):
        pool.audit([held], held)


def test_shrinking_moves_what_is_referenced_and_cached() -> None:
    pool = make_pool(12)
    pool.take(11)
    pool.keep(8)
    pool.keep(10)
    pool.share([9])
    pool.release([2, 4, 5, 6, 7, 8, 10, 11])
    moves = pool.resize(7)
    assert sorted(moves) == [8, 9, 10]
    assert set(moves.values()) <= {2, 4, 5, 6}
    assert pool.is_cached(moves[8])
    assert pool.references(moves[9]) == 2
    pool.audit([[1, 3, moves[9]], [moves[9]]], [moves[8], moves[10]])


def test_shrinking_below_what_is_held_or_cached_is_a_bug_of_the_caller() -> None:
    pool = make_pool(12)
    held = pool.take(4)
    pool.keep(held[-1])
    pool.release(held[-1:])
    with pytest.raises(InvariantError, match="4 blocks are held or cached"):
        pool.resize(4)
    pool.audit([held[:3]], held[3:])
    pool.forget(held[-1])
    pool.resize(4)
    assert pool.free_count == 0
