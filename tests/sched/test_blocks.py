from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool, blocks_for
from halogend.sched.errors import InvariantError

TOTAL = 12


def test_blocks_for_rounds_up() -> None:
    assert [blocks_for(n) for n in (0, 1, BLOCK_TOKENS, BLOCK_TOKENS + 1)] == [0, 1, 1, 2]


def test_lowest_addresses_first_and_block_zero_never() -> None:
    pool = BlockPool(8, 8)
    assert pool.allocate(3) == [1, 2, 3]
    pool.free([2])
    assert pool.allocate(2) == [2, 4]
    assert pool.capacity == 7


def test_asking_for_more_than_is_free_is_a_bug_of_the_caller() -> None:
    pool = BlockPool(4, 4)
    with pytest.raises(InvariantError, match="4 blocks"):
        pool.allocate(4)
    assert pool.free_count == 3


def test_giving_back_twice_is_found() -> None:
    pool = BlockPool(4, 4)
    blocks = pool.allocate(1)
    pool.free(blocks)
    with pytest.raises(InvariantError, match="nobody holds it"):
        pool.free(blocks)


@pytest.mark.parametrize("limit", [0, 5])
def test_limits_outside_the_pool(limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit {limit}"):
        BlockPool(4, 4).resize(limit)


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda pool: pool._free.append(2), "free twice"),
        (lambda pool: pool._free.append(1), "free and referenced"),
        (lambda pool: pool._free.remove(3), "lost"),
        (lambda pool: pool._free.append(9), "cannot be handed out"),
        (lambda pool: pool._referenced.add(7), "cannot be handed out"),
        (lambda pool: pool._referenced.add(pool._free.pop(0)), "without a holder"),
    ],
)
def test_audit_finds(tamper, message: str) -> None:
    pool = BlockPool(8, 6)
    held = pool.allocate(1)
    pool.audit([held])
    tamper(pool)
    with pytest.raises(InvariantError, match=message):
        pool.audit([held])


def test_audit_compares_with_the_holders() -> None:
    pool = BlockPool(8, 8)
    held = pool.allocate(2)
    with pytest.raises(InvariantError, match="held twice"):
        pool.audit([held, held])
    with pytest.raises(InvariantError, match="without a holder"):
        pool.audit([held[:1]])


def test_shrinking_moves_what_is_held_to_the_lowest_free_places() -> None:
    pool = BlockPool(12, 12)
    held = pool.allocate(10)
    pool.free([2, 5, 7, 8, 9])
    assert pool.resize(7) == {10: 2}
    pool.audit([[1, 3, 4, 6, 2]])
    assert pool.free_count == 1
    assert held[-1] == 10


def test_shrinking_below_what_is_held_is_a_bug_of_the_caller() -> None:
    pool = BlockPool(12, 12)
    held = pool.allocate(4)
    with pytest.raises(InvariantError, match="4 blocks are held"):
        pool.resize(4)
    pool.audit([held])
    assert pool.resize(5) == {}


class PoolAgainstModel(RuleBasedStateMachine):
    """The model: a state for each block, searched from the bottom."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(TOTAL, TOTAL)
        self.limit = TOTAL
        self.model = ["reserved"] + ["free"] * (TOTAL - 1)
        self.holders: list[list[int]] = []

    def free_blocks(self) -> list[int]:
        return [b for b, state in enumerate(self.model) if state == "free" and b < self.limit]

    @rule(count=st.integers(0, TOTAL))
    def allocate(self, count: int) -> None:
        expected = self.free_blocks()[:count]
        if len(expected) < count:
            with pytest.raises(InvariantError):
                self.pool.allocate(count)
            return
        got = self.pool.allocate(count)
        assert got == expected
        for block in got:
            self.model[block] = "referenced"
        self.holders.append(got)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        blocks = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        self.pool.free(data.draw(st.permutations(blocks)))
        for block in blocks:
            self.model[block] = "free"

    @rule(limit=st.integers(1, TOTAL))
    def resize(self, limit: int) -> None:
        held = [b for b, state in enumerate(self.model) if state == "referenced"]
        if len(held) > limit - 1:
            with pytest.raises(InvariantError):
                self.pool.resize(limit)
            return
        expected: dict[int, int] = {}
        for block in held:
            if block >= limit:
                expected[block] = next(b for b in range(1, limit) if self.model[b] == "free")
                self.model[expected[block]], self.model[block] = "referenced", "free"
        assert self.pool.resize(limit) == expected
        self.holders = [[expected.get(block, block) for block in blocks] for blocks in self.holders]
        self.limit = limit

    @invariant()
    def counts_agree(self) -> None:
        assert self.pool.free_count == len(self.free_blocks())
        assert self.pool.used_count == self.model.count("referenced")
        assert self.pool.capacity == self.limit - 1
        self.pool.audit(self.holders)


TestPoolAgainstModel = PoolAgainstModel.TestCase
