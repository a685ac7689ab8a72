"""What the pool is held against: other ways to give out KV memory, with the same face."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from halogend.sched.blocks import BlockPool
from halogend.sched.errors import InvariantError


class FreeListPool(BlockPool):
    """Blocks of 16 tokens from a plain list: what was free for longest is given out first, wherever it
    lies. Its limit never moves."""

    def __init__(self, total: int) -> None:
        super().__init__(total, total)
        self._list = deque(range(1, total))
        self._holders: Counter[int] = Counter()
        self._known: set[int] = set()

    @property
    def free_count(self) -> int:
        return len(self._list)

    @property
    def referenced_count(self) -> int:
        return len(self._holders)

    @property
    def cached_count(self) -> int:
        return self.capacity - len(self._list) - len(self._holders)

    def references(self, block: int) -> int:
        return self._holders[block]

    def is_cached(self, block: int) -> bool:
        return block in self._known and block not in self._holders

    def in_rows(self, after: int = 0) -> int:
        """A list does not care where a block lies."""
        return len(self._list)

    def take(self, count: int, after: int = 0, ahead: int = 0) -> list[int]:
        if count > len(self._list):
            raise InvariantError(f"{count} blocks are asked of a list of {len(self._list)}")
        blocks = [self._list.popleft() for _ in range(count)]
        self._holders.update(blocks)
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        self._holders.update(blocks)

    def release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._holders[block] -= 1
            if not self._holders[block]:
                del self._holders[block]
                if block not in self._known:
                    self._list.append(block)

    def keep(self, block: int) -> None:
        self._known.add(block)

    def forget(self, block: int) -> None:
        self._known.remove(block)
        if block not in self._holders:
            self._list.append(block)

    def completes_buddy(self, block: int) -> bool:
        return False

    def resize(self, limit: int) -> dict[int, int]:
        """Once, when it is made."""
        if limit != self._total:
            raise InvariantError("a plain list keeps its size")
        self._limit = limit
        return {}

    def audit(self, holders: Iterable[Iterable[int]], kept: Iterable[int] = ()) -> None:
        held = Counter(block for blocks in holders for block in blocks)
        known = set(kept)
        if held != self._holders or known != self._known:
            raise InvariantError("the list's blocks are not held or kept as its users say")
        if sorted([*self._list, *(held.keys() | known)]) != list(range(1, self._total)):
            raise InvariantError("a block is lost or in two places")
