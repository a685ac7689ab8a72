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

    Block 0 is reserved: zeros that kernels use as padding. A block is free, referenced (at least
    one holder), or retired: at or above the limit and held by nobody. Single writer: the
    scheduler.

        0 | 1 ... limit-1            | limit ... total-1
          | free or referenced       | retired, or referenced until its holder lets go
    """

    def __init__(self, total: int, limit: int) -> None:
        self._total = total
        self._limit = 1
        self._references: dict[int, int] = {}
        self._free: list[int] = []
        self.resize(limit)

    @property
    def total(self) -> int:
        return self._total

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def used_count(self) -> int:
        return len(self._references)

    @property
    def capacity(self) -> int:
        """The most blocks that can be held at once under the limit."""
        return self._limit - 1

    def allocate(self, count: int) -> list[int] | None:
        """`count` blocks with one reference each, lowest addresses first; None if too few are free."""
        if count > len(self._free):
            return None
        blocks = [heapq.heappop(self._free) for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Gives one reference of each back. Raises InvariantError for a block that has none."""
        for block in blocks:
            count = self._references.pop(block, 0)
            if count == 0:
                raise InvariantError(f"block {block} is given back but nobody holds it")
            if count > 1:
                self._references[block] = count - 1
            elif block < self._limit:
                heapq.heappush(self._free, block)

    def resize(self, limit: int) -> None:
        """Moves the limit, live. Held blocks stay with their holders; one at or above the limit is
        retired when it is freed. Raises ValueError outside 1..total."""
        if not 1 <= limit <= self._total:
            raise ValueError(f"a pool of {self._total} blocks cannot have the limit {limit}")
        self._limit = limit
        self._free = [block for block in range(1, limit) if block not in self._references]

    def audit(self) -> None:
        """Raises InvariantError unless free + referenced + retired = total and no block is two of them."""
        free = set(self._free)
        if len(free) != len(self._free):
            raise InvariantError("a block is free twice")
        if both := free & self._references.keys():
            raise InvariantError(f"blocks are free and referenced: {sorted(both)}")
        if any(count < 1 for count in self._references.values()):
            raise InvariantError("a block is referenced by nobody")
        if stray := [b for b in (*free, *self._references) if not 1 <= b < self._total]:
            raise InvariantError(f"blocks that do not exist: {sorted(stray)}")
        if over := [b for b in free if b >= self._limit]:
            raise InvariantError(f"blocks at or above the limit {self._limit} are free: {sorted(over)}")
        held_over = sum(1 for b in self._references if b >= self._limit)
        retired = self._total - self._limit - held_over
        if len(free) + len(self._references) + retired != self._total - 1:
            raise InvariantError(
                f"{len(free)} free, {len(self._references)} referenced and {retired} retired blocks"
                f" are not {self._total - 1}"
            )
