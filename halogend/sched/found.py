"""What a sequence that begins finds: blocks that it shares, and a copy of the last one where it must write there."""

from __future__ import annotations

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool
from halogend.sched.eviction import Evictor
from halogend.sched.layout import KvLayout
from halogend.sched.prefix import Node, Session
from halogend.sched.request import Sequence
from halogend.sched.sessions import first_seen


class Found:
    """Fills the tables of sequences that begin, and owns the copies that are due. Single writer: BlockTables."""

    def __init__(self, pool: BlockPool, layout: KvLayout, evictor: Evictor) -> None:
        self._pool = pool
        self._layout = layout
        self._evictor = evictor
        self._copies: list[tuple[int, int]] = []
        self._sources: list[list[Node]] = []

    @property
    def held(self) -> list[int]:
        """The old blocks of copies that are due."""
        return [old for old, _ in self._copies]

    @property
    def paths(self) -> list[list[Node]]:
        """Whose ends are copied."""
        return self._sources

    def move(self, moves: dict[int, int]) -> None:
        """Blocks have other places from now on, old to new."""
        self._copies = [(moves.get(old, old), moves.get(new, new)) for old, new in self._copies]

    def usable(self, path: list[Node], tokens: int) -> list[Node]:
        """As much of it as a sequence of so many tokens can go on from: what it sees of sliding tables from
        there is not given up."""
        blocks = len(path)
        while blocks:
            start = min(blocks * BLOCK_TOKENS, tokens - 1)
            gaps = [
                place
                for table, window in self._layout.sliding
                for place in range(first_seen(window, start), blocks)
                if not path[place].blocks[table]
            ]
            if not gaps:
                break
            blocks = min(gaps)  # every longer one sees this gap too
        return path[:blocks]

    def share(self, sequence: Sequence, path: list[Node], start: int) -> bool:
        """Holds what it sees of `path` from position `start` on. False if the last block is to be a copy and
        there is no room for one; nothing is held then."""
        sequence.blocks = []
        for number, window in enumerate(self._layout.windows):
            first = first_seen(window, start)
            blocks = [node.blocks[number] for node in path[first:]]
            self._pool.share(blocks)
            sequence.blocks.append([0] * first + blocks)
            sequence.held += len(blocks)
        if start == len(path) * BLOCK_TOKENS:
            return True
        if self._pool.free_count + self._pool.cached_count >= self._layout.tables:
            self._copy_last(sequence, path)
            return True
        for table in sequence.blocks:
            self._pool.release(block for block in table if block)
        sequence.held = 0
        return False

    def _copy_last(self, sequence: Sequence, path: list[Node]) -> None:
        """The old block stays held, and the path used, until the copies are taken."""
        self._evictor.use(path, sequence.request.caller.klass, session_of(sequence))
        self._sources.append(path)
        self._evictor.make_free(self._layout.tables, session_of(sequence))
        for table in sequence.blocks:
            (new,) = self._pool.take(1, table[-2] if len(table) > 1 else 0)
            self._copies.append((table[-1], new))
            table[-1] = new

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """Blocks that the next step copies, old to new and in this order, before anything else. From then on
        the old ones may be evicted: whoever gets one writes it in that step or later."""
        copies = tuple(self._copies)
        self._copies.clear()
        self._pool.release(old for old, _ in copies)
        for path in self._sources:
            self._evictor.leave(path)
        self._sources.clear()
        return copies


def session_of(sequence: Sequence) -> Session | None:
    """The conversation that it goes on with, if its caller named one."""
    caller = sequence.request.caller
    return (caller.scope, caller.session) if caller.session else None
