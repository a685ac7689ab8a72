"""20,000 steps of the pool beside a naive model of it, with an audit each."""

from __future__ import annotations

import random

import pytest

from halogend.sched.blocks import BlockPool
from halogend.sched.errors import InvariantError

TOTAL = 256
STEPS = 20_000


class Model:
    """A count for each block and who holds it, and the pool that does the same. `growing` and `sharing` have a list of
    blocks for each holder."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.pool = BlockPool(TOTAL, TOTAL)
        self.limit = TOTAL
        self.counts = [0] * TOTAL
        self.kept: set[int] = set()
        self.growing: list[list[int]] = []
        self.sharing: list[list[int]] = []
        self.done: dict[str, int] = {}

    def free(self) -> set[int]:
        return {block for block in range(1, self.limit) if not self.counts[block] and block not in self.kept}

    def cached(self) -> list[int]:
        return [block for block in self.kept if not self.counts[block]]

    def step(self) -> None:
        calls = [self.start, self.grow, self.grow, self.end, self.share, self.unshare, self.keep, self.forget]
        call = self.resize if self.draw.random() < 0.02 else self.draw.choice(calls)
        self.done[call.__name__] = self.done.get(call.__name__, 0) + bool(call())
        self.check()

    def start(self) -> bool:
        count = self.draw.choice([1, 2, 3, 9, 30])
        return self.take([], count)

    def grow(self) -> bool:
        return bool(self.growing) and self.take(self.draw.choice(self.growing), self.draw.choice([1, 1, 1, 4, 20]))

    def take(self, blocks: list[int], count: int) -> bool:
        free, after = self.free(), blocks[-1] if blocks else 0
        if count > len(free):
            with pytest.raises(InvariantError):
                self.pool.take(count, after)
            return False
        taken = self.pool.take(count, after, self.draw.choice([1, 3, 8, 40]))
        assert len(set(taken)) == len(taken) == count
        assert set(taken) <= free
        for block in taken:
            self.counts[block] += 1
        if after + 1 in free and after:
            assert taken[0] == after + 1, "what grows goes on where it ends"
        behind = {other[-1] + 1 for other in self.growing if other is not blocks} & free
        if intruding := (behind - {after + 1}) & set(taken):
            spared = {block for block in free - set(taken) if not self.counts[block - 1]}
            assert not spared, f"{intruding} went to another, while nobody can grow into {spared}"
        if not blocks:
            self.growing.append(blocks)
        blocks += taken
        return True

    def end(self) -> bool:
        if not self.growing:
            return False
        self.drop(self.growing, self.draw.randrange(len(self.growing)))
        return True

    def unshare(self) -> bool:
        if not self.sharing:
            return False
        self.drop(self.sharing, self.draw.randrange(len(self.sharing)))
        return True

    def drop(self, holders: list[list[int]], index: int) -> None:
        blocks = holders.pop(index)
        self.draw.shuffle(blocks)
        self.pool.release(blocks)
        for block in blocks:
            self.counts[block] -= 1

    def share(self) -> bool:
        living = [block for block in range(1, self.limit) if self.counts[block] or block in self.kept]
        if not living or len(self.sharing) > 4:
            return False
        blocks = self.draw.sample(living, min(len(living), self.draw.randint(1, 12)))
        self.pool.share(blocks)
        for block in blocks:
            self.counts[block] += 1
        self.sharing.append(blocks)
        return True

    def keep(self) -> bool:
        held = [block for block in range(1, self.limit) if self.counts[block]]
        for block in self.draw.sample(held, min(len(held), 8)):
            self.pool.keep(block)
            self.kept.add(block)
        return bool(held)

    def forget(self) -> bool:
        kept = sorted(self.kept)
        for block in self.draw.sample(kept, min(len(kept), 16)):
            self.pool.forget(block)
            self.kept.remove(block)
        return bool(kept)

    def resize(self) -> bool:
        limit = self.draw.choice([TOTAL, self.draw.randint(1, TOTAL)])
        living = {block for block in range(TOTAL) if self.counts[block]} | self.kept
        if len(living) > limit - 1:
            with pytest.raises(InvariantError):
                self.pool.resize(limit)
            return False
        moves = self.pool.resize(limit)
        assert set(moves) == {block for block in living if block >= limit}
        assert len(set(moves.values())) == len(moves)
        assert not set(moves.values()) & living
        assert all(0 < block < limit for block in moves.values())
        for old, new in moves.items():
            self.counts[new], self.counts[old] = self.counts[old], 0
        self.kept = {moves.get(block, block) for block in self.kept}
        for blocks in (*self.growing, *self.sharing):
            blocks[:] = [moves.get(block, block) for block in blocks]
        self.limit = limit
        return True

    def check(self) -> None:
        self.pool.audit((*self.growing, *self.sharing), self.kept)
        referenced = TOTAL - self.counts.count(0)
        assert self.pool.limit == self.limit
        assert self.pool.cached_count == len(self.cached())
        assert self.pool.referenced_count == referenced
        assert self.pool.free_count == self.limit - 1 - referenced - len(self.cached())


@pytest.mark.parametrize("seed", range(4))
def test_the_pool_does_what_the_model_does(seed: int) -> None:
    model = Model(seed)
    for _ in range(STEPS // 4):
        model.step()
    assert len(model.done) == 8
    assert min(model.done.values()) > 30, model.done
    assert [model.pool.references(block) for block in range(TOTAL)] == model.counts
    assert [block for block in range(TOTAL) if model.pool.is_cached(block)] == sorted(model.cached())
