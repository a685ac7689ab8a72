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
    """Blocks 1 to `total` - 1, of which those under `limit` are handed out, lowest first.

    Block 0 is reserved: zeros that kernels use as padding. A block is free, referenced (held by
    one request), or retired: at or above the limit and held by nobody. Single writer: the
    scheduler.

        0 | 1 ... limit-1            | limit ... total-1
          | free or referenced       | retired, or referenced until its holder lets go
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
            if block < self._limit:
                heapq.heappush(self._free, block)

    def resize(self, limit: int) -> None:
        """Moves the limit, live. Held blocks stay with their holders; one at or above the limit is
        retired when it is freed. Raises ValueError outside 1..total."""
        if not 1 <= limit <= self._total:
            raise ValueError(f"a pool of {self._total} blocks cannot have the limit {limit}")
        self._limit = limit
        self._free = [block for block in range(1, limit) if block not in self._referenced]

    def audit(self, holders: Iterable[Iterable[int]]) -> None:
        """Raises InvariantError unless free + referenced + retired = total, no block is two of
        these, and what is referenced is exactly what `holders` hold, each block once."""
        free = set(self._free)
        if len(free) != len(self._free):
            raise InvariantError("a block is free twice")
        if both := free & self._referenced:
            raise InvariantError(f"blocks are free and referenced: {sorted(both)}")
        if lost := set(range(1, self._limit)) - free - self._referenced:
            raise InvariantError(f"blocks under the limit {self._limit} are lost: {sorted(lost)}")
        if stray := (free - set(range(1, self._limit))) | (self._referenced - set(range(1, self._total))):
            raise InvariantError(f"blocks that cannot be handed out: {sorted(stray)}")
        held = [block for blocks in holders for block in blocks]
        if len(set(held)) != len(held):
            raise InvariantError("a block is held twice")
        if leaked := self._referenced ^ set(held):
            raise InvariantError(
                f"blocks are referenced without a holder or held without a reference: {sorted(leaked)}"
            )
