"""The pool of KV blocks: who may write where. Knows numbers only, no memory."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from halogend.sched.errors import InvariantError

BLOCK_TOKENS = 16


def blocks_for(tokens: int) -> int:
    """How many blocks hold `tokens` positions."""
    return -(-tokens // BLOCK_TOKENS)


class BlockPool:
    """Blocks 1 to `limit` - 1 of `total`, handed out lowest first.

    Block 0 is reserved: zeros that kernels use as padding. Every other block under the limit is exactly one
    of free, referenced (by one holder or more) and cached: by none, but kept, because an index knows what
    is in it. Nobody has one at or above the limit. Single writer: the scheduler.

        0 | 1 ... limit-1                     | limit ... total-1
          | free, referenced or cached        | no block: its memory may have gone back

                  take                release, kept
          free ---------> referenced ---------------> cached
               <---------            <---------------
                release                    share            forget: cached -> free
    """

    def __init__(self, total: int, limit: int) -> None:
        self._total = total
        self._limit = 1
        self._counts: dict[int, int] = {}
        self._kept: set[int] = set()
        self._cached = 0
        self._free: set[int] = set()
        self._order: list[int] = []
        self.resize(limit)

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def capacity(self) -> int:
        """The most blocks that can be held at once under the limit."""
        return self._limit - 1

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def referenced_count(self) -> int:
        """Blocks that somebody holds, each counted once."""
        return len(self._counts)

    @property
    def cached_count(self) -> int:
        return self._cached

    def references(self, block: int) -> int:
        """How many hold it."""
        return self._counts.get(block, 0)

    def is_cached(self, block: int) -> bool:
        return block in self._kept and block not in self._counts

    def take(self, count: int, after: int = 0) -> list[int]:
        """`count` blocks, each referenced once: the one that follows `after` first, if that is free, then the
        lowest. Raises InvariantError when fewer are free: look first."""
        if count > len(self._free):
            raise InvariantError(f"{count} blocks are asked of a pool with {len(self._free)} free")
        blocks: list[int] = []
        if count and after and after + 1 in self._free:
            blocks.append(after + 1)
            self._free.remove(after + 1)
        while len(blocks) < count:
            block = heapq.heappop(self._order)
            if block in self._free:
                self._free.remove(block)
                blocks.append(block)
        self._counts.update(dict.fromkeys(blocks, 1))
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """One more holder of each. Raises InvariantError for a block that is free."""
        for block in blocks:
            if block in self._counts:
                self._counts[block] += 1
            elif block in self._kept:
                self._counts[block] = 1
                self._cached -= 1
            else:
                raise InvariantError(f"block {block} is shared but nobody holds or keeps it")

    def release(self, blocks: Iterable[int]) -> None:
        """One holder less of each; the last leaves it cached if it is kept, else free. Raises InvariantError
        for one that nobody holds."""
        for block in blocks:
            count = self._counts.get(block, 0)
            if count == 0:
                raise InvariantError(f"block {block} is given back but nobody holds it")
            if count > 1:
                self._counts[block] = count - 1
                continue
            del self._counts[block]
            if block in self._kept:
                self._cached += 1
            else:
                self._put_back(block)

    def keep(self, block: int) -> None:
        """An index knows what is in it from now on. Raises InvariantError for a block that nobody holds."""
        if block not in self._counts:
            raise InvariantError(f"block {block} is to be kept but nobody holds it")
        self._kept.add(block)

    def forget(self, block: int) -> None:
        """No index knows it any more: a cached one is free. Raises InvariantError for one that is not kept."""
        if block not in self._kept:
            raise InvariantError(f"block {block} is to be forgotten but is not kept")
        self._kept.remove(block)
        if block not in self._counts:
            self._cached -= 1
            self._put_back(block)

    def completes_buddy(self, block: int) -> bool:
        """Whether the block beside it is free, so that freeing it makes a longer run."""
        return block ^ 1 in self._free

    def resize(self, limit: int) -> dict[int, int]:
        """Moves the limit, live. What is referenced or cached at or above it goes to the lowest free places: old
        block to new, which is for the caller to copy and to tell holders and index. Raises ValueError outside
        1..total, InvariantError when there is room for fewer: release or forget some first."""
        if not 1 <= limit <= self._total:
            raise ValueError(f"a pool of {self._total} blocks cannot have the limit {limit}")
        living = self._counts.keys() | self._kept
        if len(living) > limit - 1:
            raise InvariantError(f"{len(living)} blocks are held or cached, and the limit {limit} leaves {limit - 1}")
        free = [block for block in range(1, limit) if block not in living]
        behind = sorted(block for block in living if block >= limit)
        moves = dict(zip(behind, free, strict=False))
        self._counts = {moves.get(block, block): count for block, count in self._counts.items()}
        self._kept = {moves.get(block, block) for block in self._kept}
        self._limit, self._order = limit, free[len(moves) :]
        self._free = set(self._order)
        return moves

    def audit(self, holders: Iterable[Iterable[int]], kept: Iterable[int] = ()) -> None:
        """Raises InvariantError unless free + referenced + cached = all under the limit, no block is two of
        them, each is referenced as often as `holders` hold it, and what is kept is exactly `kept`."""
        if wrong := {block for block, count in self._counts.items() if count < 1}:
            raise InvariantError(f"blocks are referenced less than once: {sorted(wrong)}")
        if both := self._free & (self._counts.keys() | self._kept):
            raise InvariantError(f"blocks are free and in use: {sorted(both)}")
        every = self._free | self._counts.keys() | self._kept
        if lost := set(range(1, self._limit)) - every:
            raise InvariantError(f"blocks under the limit {self._limit} are lost: {sorted(lost)}")
        if stray := every - set(range(1, self._limit)):
            raise InvariantError(f"blocks that cannot be handed out: {sorted(stray)}")
        if self._cached != len(self._kept - self._counts.keys()):
            raise InvariantError(f"{self._cached} blocks are counted as cached, which is not how many are")
        held = Counter(block for blocks in holders for block in blocks)
        if leaked := {block for block in held.keys() | self._counts if held[block] != self.references(block)}:
            raise InvariantError(f"blocks are not referenced as often as they are held: {sorted(leaked)}")
        if strange := self._kept ^ set(kept):
            raise InvariantError(f"blocks are kept and in no index, or in one and not kept: {sorted(strange)}")

    def _put_back(self, block: int) -> None:
        self._free.add(block)
        heapq.heappush(self._order, block)
