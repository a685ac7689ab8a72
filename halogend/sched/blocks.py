"""The pool of KV blocks: who may write where. Knows numbers only, no memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from halogend.sched.errors import InvariantError

BLOCK_TOKENS = 16


def blocks_for(tokens: int) -> int:
    """How many blocks hold `tokens` positions."""
    return -(-tokens // BLOCK_TOKENS)


class BlockPool:
    """Blocks 1 to `limit` - 1 of `total`, handed out lowest first.

    Block 0 is reserved: zeros that kernels use as padding. Every other block under the limit is free or
    referenced (held by one request); nobody holds one at or above it. Single writer: the scheduler.

        0 | 1 ... limit-1            | limit ... total-1
          | free or referenced       | no block: its memory may have gone back
    """

    def __init__(self, total: int, limit: int) -> None:
        self._total = total
        self._limit = 1
        self._referenced: set[int] = set()
        self._free: list[int] = []
        self.resize(limit)

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def used_count(self) -> int:
        return len(self._referenced)

    @property
    def capacity(self) -> int:
        """The most blocks that can be held at once under the limit."""
        return self._limit - 1

    def allocate(self, count: int) -> list[int]:
        """`count` blocks, lowest addresses first. Raises InvariantError when fewer are free: look first."""
        if count > len(self._free):
            raise InvariantError(f"{count} blocks are asked of a pool with {len(self._free)} free")
        blocks = [heapq.heappop(self._free) for _ in range(count)]
        self._referenced.update(blocks)
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Takes blocks back. Raises InvariantError for one that nobody holds."""
        for block in blocks:
            if block not in self._referenced:
                raise InvariantError(f"block {block} is given back but nobody holds it")
            self._referenced.remove(block)
            heapq.heappush(self._free, block)

    def resize(self, limit: int) -> dict[int, int]:
        """Moves the limit, live. What is held at or above it goes to the lowest free places: old block to
        new, which is for the caller to copy and to tell the holders. Raises ValueError outside 1..total,
        InvariantError when more are held than there is room for: take some back first."""
        if not 1 <= limit <= self._total:
            raise ValueError(f"a pool of {self._total} blocks cannot have the limit {limit}")
        if self.used_count > limit - 1:
            raise InvariantError(f"{self.used_count} blocks are held, and the limit {limit} has room for {limit - 1}")
        free = [block for block in range(1, limit) if block not in self._referenced]
        behind = sorted(block for block in self._referenced if block >= limit)
        moves = dict(zip(behind, free, strict=False))
        self._referenced.difference_update(behind)
        self._referenced.update(moves.values())
        self._limit, self._free = limit, free[len(moves) :]
        return moves

    def audit(self, holders: Iterable[Iterable[int]]) -> None:
        """Raises InvariantError unless free + referenced = all under the limit, no block is both, and what
        is referenced is exactly what `holders` hold, each block once."""
        free = set(self._free)
        if len(free) != len(self._free):
            raise InvariantError("a block is free twice")
        if both := free & self._referenced:
            raise InvariantError(f"blocks are free and referenced: {sorted(both)}")
        if lost := set(range(1, self._limit)) - free - self._referenced:
            raise InvariantError(f"blocks under the limit {self._limit} are lost: {sorted(lost)}")
        if stray := (free | self._referenced) - set(range(1, self._limit)):
            raise InvariantError(f"blocks that cannot be handed out: {sorted(stray)}")
        held = [block for blocks in holders for block in blocks]
        if len(set(held)) != len(held):
            raise InvariantError("a block is held twice")
        if leaked := self._referenced ^ set(held):
            raise InvariantError(
                f"blocks are referenced without a holder or held without a reference: {sorted(leaked)}"
            )
