"""Free blocks as aligned runs: a buddy allocator that knows addresses and nothing of who asks.

A run of order k is 2^k blocks and begins at a multiple of 2^k; two that are each other's half of a run of
order k + 1 are joined at once (Knowlton, 1965). What is asked for is cut from the front of a run and the rest
put back, so that it need not be a power of two and goes on where it ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import chain

from halogend.sched.errors import InvariantError

RUN_BLOCKS = 8
"""Memory that is read in runs of so many blocks is read about as fast as if it were one."""


class BuddyRuns:
    """Free runs among the blocks 1 to `total` - 1, none at first. Single writer: the pool."""

    def __init__(self, total: int) -> None:
        orders = total.bit_length()
        self._order_at = bytearray(1 << orders)  # order + 1 where a free run begins, else 0
        self._counts = [0] * orders
        # Lowest first, with entries that no longer hold and are dropped when they come up; each once at most.
        self._heaps: list[list[int]] = [[] for _ in range(orders)]
        self._queued: list[set[int]] = [set() for _ in range(orders)]

    def put(self, start: int, end: int) -> None:
        """Blocks `start` to `end` - 1 are free from now on."""
        order_at = self._order_at
        while start < end:
            order = min((start & -start).bit_length(), (end - start).bit_length()) - 1
            first = start
            start += 1 << order
            while order_at[buddy := first ^ (1 << order)] == order + 1:
                order_at[buddy] = 0
                self._counts[order] -= 1
                first &= buddy
                order += 1
            order_at[first] = order + 1
            self._counts[order] += 1
            if first not in self._queued[order]:
                self._queued[order].add(first)
                heapq.heappush(self._heaps[order], first)

    def begins_at(self, block: int) -> bool:
        """Whether a run begins there. A block behind one that is not free is free if one does."""
        return self._order_at[block] > 0

    def in_long_runs(self) -> int:
        """Blocks in runs of RUN_BLOCKS and more."""
        return sum(count << order for order, count in enumerate(self._counts) if 1 << order >= RUN_BLOCKS)

    def best(self, wanted: int) -> int:
        """Where to take `wanted` blocks: the lowest of the shortest runs that hold them, else of the longest
        there are; 0 when nothing is free."""
        order = min((wanted - 1).bit_length(), len(self._counts))
        for fits in chain(range(order, len(self._counts)), reversed(range(order))):
            if self._counts[fits]:
                heap = self._heaps[fits]
                while self._order_at[heap[0]] != fits + 1:
                    self._queued[fits].remove(heapq.heappop(heap))
                return heap[0]
        return 0

    def claim(self, start: int, wanted: int) -> int:
        """Takes `wanted` blocks from the one at `start` on, where a run begins, and those up to the next multiple
        of RUN_BLOCKS (of the next power of two, for fewer); less if not so many are free in a row. Returns the end."""
        end = start
        while end - start < wanted and (order := self._order_at[end] - 1) >= 0:
            self._order_at[end] = 0
            self._counts[order] -= 1
            end += 1 << order
        step = min(RUN_BLOCKS, 1 << (wanted - 1).bit_length())
        cut = -(-(start + wanted) // step) * step
        if cut < end:
            self.put(cut, end)
            return cut
        return end

    def blocks(self) -> Iterator[int]:
        """Every free block, in ascending order. Raises InvariantError for a run that is in no heap, overlaps another
        or should have been joined with its buddy, and for a wrong count."""
        counts = [0] * len(self._counts)
        end = 0
        for first in (block for block, mark in enumerate(self._order_at) if mark):
            order = self._order_at[first] - 1
            if first < end or first % (1 << order) or first not in self._queued[order]:
                raise InvariantError(f"the free run of {1 << order} blocks at {first} is not where it can be found")
            if self._order_at[first ^ (1 << order)] == order + 1:
                raise InvariantError(f"the free run of {1 << order} blocks at {first} is not joined with its buddy")
            counts[order] += 1
            end = first + (1 << order)
            yield from range(first, end)
        if counts != self._counts:
            raise InvariantError(f"free runs by order are {counts} and were counted as {self._counts}")
