"""The pool of KV blocks: who may write where. Knows numbers only, no memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from halogend.sched.buddy import RUN_BLOCKS, BuddyRuns
from halogend.sched.errors import InvariantError

BLOCK_TOKENS = 16


def blocks_for(tokens: int) -> int:
    """How many blocks hold `tokens` positions."""
    return -(-tokens // BLOCK_TOKENS)


class BlockPool:
    """Blocks 1 to `limit` - 1 of `total`, handed out in runs. Single writer: the scheduler.

    Block 0 is reserved: zeros that kernels use as padding. Every other block under the limit is exactly one
    of free, referenced (by one holder or more) and cached: by none, but kept, because an index knows what
    is in it. Nobody has one at or above the limit.

        0 | 1 ... limit-1                     | limit ... total-1
          | free, referenced or cached        | no block: its memory may have gone back

                  take                release, kept
          free ---------> referenced ---------------> cached
               <---------            <---------------
                release                    share            forget: cached -> free

    A growing sequence has a room: free blocks right behind its last one, left to it as long as others find any
    elsewhere, then to whoever needs them, from the far end. So what grows at the same time does not
    interleave, and nothing ever waits for blocks in a row.
    """

    def __init__(self, total: int, limit: int) -> None:
        self._total = total
        self._limit = 1
        self._counts = [0] * total
        self._kept = bytearray(total)
        self._referenced = self._cached = 0
        self._open = BuddyRuns(total)  # free, and in no room
        self._rooms: dict[int, int] = {}  # last block of what grows -> where its room ends; longest unchanged first
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
        return self._limit - 1 - self._referenced - self._cached

    @property
    def referenced_count(self) -> int:
        """Blocks that somebody holds, each counted once."""
        return self._referenced

    @property
    def cached_count(self) -> int:
        return self._cached

    def references(self, block: int) -> int:
        """How many hold it."""
        return self._counts[block]

    def is_cached(self, block: int) -> bool:
        return bool(self._kept[block]) and not self._counts[block]

    def in_rows(self, after: int = 0) -> int:
        """How many blocks `take` finds right behind `after` or in free runs of RUN_BLOCKS and more. Beyond those it
        scatters: whoever can evict something evicts until there are enough."""
        return self._rooms.get(after, after + 1) - after - 1 + self._open.in_long_runs()

    def completes_buddy(self, block: int) -> bool:
        """Whether the block beside it is free, so that freeing it makes a longer run."""
        return self._is_free(block ^ 1)

    def take(self, count: int, after: int = 0, ahead: int = RUN_BLOCKS) -> list[int]:
        """`count` blocks, each referenced once, for a sequence whose last block is `after` (0: it has none) and
        that will probably want `ahead` more. Those behind `after` come first, as far as they are free, then the
        lowest of the shortest runs with place for all, else the longest. Raises InvariantError when fewer
        are free: look first."""
        if count > self.free_count:
            raise InvariantError(f"{count} blocks are asked of a pool with {self.free_count} free")
        if count < 1:
            return []
        blocks: list[int] = []
        missing = count
        start = after + 1 if after else 0
        end = self._rooms.pop(after, start)
        while True:
            if start == end:
                if not self._open.begins_at(start):
                    start = self._place(missing, ahead)
                end = self._open.claim(start, missing + ahead)
            stop = min(start + missing, end)
            blocks += range(start, stop)
            missing -= stop - start
            start = stop
            if not missing:
                break
        if start == end and ahead and self._open.begins_at(start):
            end = self._open.claim(start, ahead)
        self._rooms[start - 1] = end
        for block in blocks:
            self._counts[block] = 1
        self._referenced += count
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """One more holder of each. Raises InvariantError for a block that is free."""
        for block in blocks:
            if not self._counts[block]:
                if not self._kept[block]:
                    raise InvariantError(f"block {block} is shared but nobody holds or keeps it")
                self._cached -= 1
                self._referenced += 1
            self._counts[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One holder less of each; the last leaves it cached if it is kept, else free. Raises InvariantError
        for one that nobody holds."""
        counts, kept, rooms = self._counts, self._kept, self._rooms
        start = end = 0
        for block in blocks:
            if counts[block] != 1:
                if not counts[block]:
                    raise InvariantError(f"block {block} is given back but nobody holds it")
                counts[block] -= 1
                continue
            counts[block] = 0
            self._referenced -= 1
            room = rooms.pop(block, 0) if rooms else 0
            if kept[block]:
                self._cached += 1
            else:
                if block != end:
                    self._put_back(start, end)
                    start = block
                end = block + 1
            if room > block + 1:
                self._put_back(block + 1, room)
        self._put_back(start, end)

    def keep(self, block: int) -> None:
        """An index knows what is in it from now on. Raises InvariantError for a block that nobody holds."""
        if not self._counts[block]:
            raise InvariantError(f"block {block} is to be kept but nobody holds it")
        self._kept[block] = 1

    def forget(self, block: int) -> None:
        """No index knows it any more: a cached one is free. Raises InvariantError for one that is not kept."""
        if not self._kept[block]:
            raise InvariantError(f"block {block} is to be forgotten but is not kept")
        self._kept[block] = 0
        if not self._counts[block]:
            self._cached -= 1
            self._put_back(block, block + 1)

    def resize(self, limit: int) -> dict[int, int]:
        """Moves the limit, live. What is referenced or cached at or above it goes to free places below, what lay in a
        row into a row where there is one: old block to new, which is for the caller to copy and to tell holders
        and index. Raises ValueError outside 1..total, InvariantError when there is room for fewer: release or
        forget some first."""
        if not 1 <= limit <= self._total:
            raise ValueError(f"a pool of {self._total} blocks cannot have the limit {limit}")
        if (living := self._referenced + self._cached) > limit - 1:
            raise InvariantError(f"{living} blocks are held or cached, and the limit {limit} leaves {limit - 1}")
        before, self._limit = self._limit, limit
        if limit >= before:
            self._put_back(before, limit)
            return {}
        tails = list(self._rooms)
        self._rooms, self._open = {}, BuddyRuns(self._total)
        for start, end in _stretches(block for block in range(1, limit) if self._is_free(block)):
            self._open.put(start, end)
        moves = self._move_down(before)
        for tail in tails:
            last = moves.get(tail, tail)
            self._rooms[last] = self._open.claim(last + 1, RUN_BLOCKS)
        return moves

    def audit(self, holders: Iterable[Iterable[int]], kept: Iterable[int] = ()) -> None:
        """Raises InvariantError unless free + referenced + cached = all under the limit, no block is two of
        them, each is referenced as often as `holders` hold it, what is kept is exactly `kept`, and whoever has
        a room is there."""
        counted = {block: count for block, count in enumerate(self._counts) if count}
        known = {block for block, mark in enumerate(self._kept) if mark}
        held = Counter(block for blocks in holders for block in blocks)
        if held != counted:
            wrong = {block for block in held | counted if held[block] != self._counts[block]}
            raise InvariantError(f"blocks are not referenced as often as they are held: {sorted(wrong)}")
        if strange := known ^ set(kept):
            raise InvariantError(f"blocks are kept and in no index, or in one and not kept: {sorted(strange)}")
        used = known | counted.keys()
        if stray := used - set(range(1, self._limit)):
            raise InvariantError(f"blocks are in use that cannot be handed out: {sorted(stray)}")
        if (self._referenced, self._cached) != (len(counted), len(used) - len(counted)):
            raise InvariantError(f"{self._referenced} blocks referenced and {self._cached} cached were counted wrongly")
        if nobody := self._rooms.keys() - counted.keys():
            raise InvariantError(f"blocks have a room behind them and no holder: {sorted(nobody)}")
        self._audit_free(used)

    def _audit_free(self, used: set[int]) -> None:
        rooms = (block for tail, end in self._rooms.items() for block in range(tail + 1, end))
        listed = [*self._open.blocks(), *rooms]
        free = set(listed)
        if len(free) != len(listed):
            raise InvariantError("a block is free twice")
        if both := free & used:
            raise InvariantError(f"blocks are free and in use: {sorted(both)}")
        if odd := free ^ used ^ set(range(1, self._limit)):
            raise InvariantError(f"blocks are lost, or free behind the limit {self._limit}: {sorted(odd)}")

    def _is_free(self, block: int) -> bool:
        return 0 < block < self._limit and not self._counts[block] and not self._kept[block]

    def _place(self, count: int, ahead: int) -> int:
        """Where to begin with `count` blocks of those that are open, or else of the rooms."""
        while not (start := self._open.best(count + ahead)):
            if not self._rooms:
                raise InvariantError(f"{count} blocks are counted as free and nowhere to be found")
            self._open_rooms(count)
        return start

    def _open_rooms(self, count: int) -> None:
        """The far half of every room is for all from now on. Where all have one block, `count` of those are, of
        what has not grown for the longest."""
        halves = [(tail, end, tail + 1 + (end - tail) // 2) for tail, end in self._rooms.items() if end > tail + 2]
        if not halves:
            last = [tail for tail, end in self._rooms.items() if end > tail + 1][:count]
            halves = [(tail, tail + 2, tail + 1) for tail in last]
        for tail, end, middle in halves:
            self._rooms[tail] = middle
            self._open.put(middle, end)

    def _put_back(self, start: int, end: int) -> None:
        """Blocks `start` to `end` - 1 are free: for what grows right before them, up to a run's end, and for all."""
        if self._rooms.get(start - 1) == start:
            room = min(end, -(-(start + 1) // RUN_BLOCKS) * RUN_BLOCKS)
            self._rooms[start - 1] = start = room
        self._open.put(start, end)

    def _move_down(self, before: int) -> dict[int, int]:
        """Everything in use from the limit up to `before` has a place below it from now on: old to new."""
        moves: dict[int, int] = {}
        used = (block for block in range(self._limit, before) if self._counts[block] or self._kept[block])
        for first, end in _stretches(used):
            start = first
            while start < end:
                place = self._place(end - start, 0)
                free = self._open.claim(place, end - start)
                moved = min(free - place, end - start)
                self._open.put(place + moved, free)
                moves.update(zip(range(start, start + moved), range(place, place + moved), strict=True))
                start += moved
        for old, new in moves.items():
            self._counts[new], self._counts[old] = self._counts[old], 0
            self._kept[new], self._kept[old] = self._kept[old], 0
        return moves


def _stretches(blocks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending blocks as (start, end) of those in a row."""
    start = end = 0
    for block in blocks:
        if block != end:
            if start < end:
                yield start, end
            start = block
        end = block + 1
    if start < end:
        yield start, end
