"""Which blocks each running sequence holds: taken as it grows, given back behind its windows."""

from __future__ import annotations

from collections.abc import Iterable

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool, blocks_for
from halogend.sched.errors import InvariantError
from halogend.sched.layout import KvLayout
from halogend.sched.limits import EvictionPolicy
from halogend.sched.request import Sequence


class BlockTables:
    """Moves blocks between one pool and the tables of sequences. Single writer: the scheduler.

    A logical block takes one block of each table when its first position is planned. A sliding
    table's block is given back when a step was applied that ends at a position from which the
    window no longer reaches the block. No step can read it then that has not run: a later step of
    the same sequence starts at that end or behind it, the one in flight included, since steps of a
    sequence follow each other without a gap and a sequence that gave way begins again with new
    tables. So the entry may become 0 while a step in flight reads the list, and whoever is handed
    the block may write it whenever its step runs.
    """

    def __init__(self, pool: BlockPool, layout: KvLayout) -> None:
        self._pool = pool
        self._layout = layout
        self._open: set[Sequence] = set()

    @property
    def available(self) -> int:
        """Blocks that can be had without anybody giving way: free ones and those that can be evicted."""
        return self._pool.free_count + self._pool.cached_count

    @property
    def used(self) -> int:
        """Blocks that cannot be had: those of running sequences and those that are pinned."""
        return self._pool.referenced_count

    def open(self, sequence: Sequence, now: float) -> int:
        """New tables: the old may still be read by a step in flight. How many positions are there already and
        need not be computed: always fewer than there are tokens."""
        sequence.blocks = [[] for _ in self._layout.windows]
        self._open.add(sequence)
        return 0

    def room(self, sequence: Sequence) -> int:
        """How many positions it may compute with the blocks it has and those that are free."""
        logical = len(sequence.blocks[0]) + self.available // self._layout.tables
        return logical * BLOCK_TOKENS - sequence.computed

    def extend(self, sequence: Sequence, end: int, now: float) -> None:
        """Blocks for every position before `end`. Raises InvariantError when there is no room."""
        missing = blocks_for(end) - len(sequence.blocks[0])
        if missing <= 0:
            return
        if missing * self._layout.tables > self._pool.free_count:
            raise InvariantError(f"request {sequence.request.id} is to grow by more blocks than are free")
        for table in sequence.blocks:
            table.extend(self._pool.take(missing, after=table[-1] if table else 0))
        sequence.held += missing * self._layout.tables

    def written(self, sequence: Sequence, end: int, now: float) -> None:
        """The step that ended before position `end` was applied, and went well."""
        for number, window in self._layout.sliding:
            table = sequence.blocks[number]
            index = (end - window + 1) // BLOCK_TOKENS  # the first block that is still seen
            while index > 0 and table[index - 1]:
                index -= 1
                self._pool.release((table[index],))
                table[index] = 0
                sequence.held -= 1

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """Blocks that the next step copies, old to new and in this order, before anything else."""
        return ()

    def tick(self, now: float) -> None:
        """Time passes: what was kept for so long goes."""

    def set_policy(self, policy: EvictionPolicy) -> None:
        """From now on."""

    def resize(self, limit: int) -> dict[int, int]:
        """Moves the pool's limit; old place to new of the blocks that moved, which are to be copied. Not while
        a step in flight reads the lists. Raises InvariantError when more is used than there will be room for."""
        moves = self._pool.resize(limit)
        for table in (table for sequence in self._open if moves for table in sequence.blocks):
            table[:] = [moves.get(block, block) for block in table]
        return moves

    def release(self, sequence: Sequence, now: float) -> None:
        """Everything goes back. The lists stay as they are: a step in flight reads them."""
        for table in sequence.blocks:
            self._pool.release(block for block in table if block)
        sequence.blocks = []
        sequence.held = 0
        self._open.remove(sequence)

    def audit(self, running: Iterable[Sequence]) -> None:
        """Raises InvariantError unless every block is in one place, and every sequence holds what its
        next position sees and what is computed already."""
        held: list[list[int]] = []
        for sequence in running:
            live = [block for table in sequence.blocks for block in table if block]
            if len(live) != sequence.held:
                raise InvariantError(f"request {sequence.request.id} holds {len(live)} blocks, not {sequence.held}")
            if not self._covers(sequence):
                raise InvariantError(f"request {sequence.request.id} lacks a block that its next step sees")
            held.append(live)
        self._pool.audit(held)

    def _covers(self, sequence: Sequence) -> bool:
        last = blocks_for(sequence.computed)
        for table, window in zip(sequence.blocks, self._layout.windows, strict=True):
            first = 0 if window is None else max(0, sequence.computed - window + 1) // BLOCK_TOKENS
            if len(table) < last or not all(table[first:]):
                return False
        return True
