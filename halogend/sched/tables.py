"""Which blocks each running sequence holds: found or taken as it grows, given back behind its windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from itertools import takewhile

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool, blocks_for
from halogend.sched.buddy import RUN_BLOCKS
from halogend.sched.errors import InvariantError
from halogend.sched.eviction import Evictor
from halogend.sched.found import Found, session_of
from halogend.sched.layout import KvLayout
from halogend.sched.limits import EvictionPolicy
from halogend.sched.prefix import Node, PrefixIndex
from halogend.sched.request import Sequence
from halogend.sched.sessions import Pins, first_seen, go_on, reach
from halogend.sched.stats import ReuseStats
from halogend.sched.written import Holding, Written


class BlockTables:
    """Moves blocks between one pool and the tables of sequences. Single writer: the scheduler.

    A logical block takes one block of each table when its first position is planned. A sliding
    table's block is given back when a step was applied that ends at a position from which the
    window no longer reaches the block. No step can read it then that has not run: a later step of
    the same sequence starts at that end or behind it, the one in flight included, since steps of a
    sequence follow each other without a gap and a sequence that gave way begins again with new
    tables. So the entry may become 0 while a step in flight reads the list, and whoever is handed
    the block may write it whenever its step runs.

    A logical block that is full goes into the index when the step that filled it was applied, and
    nobody writes it from then on: a sequence that begins shares it. One whose tokens are all there
    computes its last position once more, into a copy of its last block, which the index' own takes the
    place of when it is full again, as it does of any block that two have computed at once. Such an
    entry too may change while a step in flight reads the list: what it reads is the same.
    """

    def __init__(self, pool: BlockPool, layout: KvLayout) -> None:
        self._pool = pool
        self._layout = layout
        self._index = PrefixIndex(pool)
        self._evictor = Evictor(pool, self._index, layout)
        self._pins = Pins(pool, layout, self._evictor)
        self._found = Found(pool, layout, self._evictor)
        self._written = Written(pool, layout, self._index, self._evictor)
        self._open: dict[Sequence, Holding] = {}
        self._query_tokens = 0
        self._hit_tokens = 0

    # --- what there is ----------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Blocks that can be had without anybody giving way: free ones and those that can be evicted."""
        return self._pool.free_count + self._pool.cached_count

    @property
    def used(self) -> int:
        """Blocks that cannot be had: those of running sequences and those that are pinned."""
        return self._pool.referenced_count

    @property
    def reuse(self) -> ReuseStats:
        return ReuseStats(
            query_tokens=self._query_tokens,
            hit_tokens=self._hit_tokens,
            evictions=dict(self._evictor.evicted),
            blocks_cached=self._pool.cached_count,
            blocks_pinned=self._pins.blocks,
            sessions=len(self._index.tips),
        )

    def room(self, sequence: Sequence) -> int:
        """How many positions it may compute with the blocks it has and those that are available. Pins give way
        to the only one that runs."""
        while (room := self._room(sequence)) <= 0 and len(self._open) == 1:
            if not self._pins.yield_oldest():
                break
        return room

    def _room(self, sequence: Sequence) -> int:
        logical = len(sequence.blocks[0]) + self.available // self._layout.tables
        return logical * BLOCK_TOKENS - sequence.computed

    def shared(self, sequence: Sequence, gone: Container[int] = ()) -> int:
        """How many of its blocks somebody holds already that it would find if it began now, with those `gone`
        that are held no more. A sliding table's are not counted: its window leaves them."""
        tokens = len(sequence.tokens)
        path = self._found.usable(self._index.match(sequence.chain, tokens // BLOCK_TOKENS), tokens)
        path = path[: (tokens - 1) // BLOCK_TOKENS]
        return self._in_common(path, lambda block: self._pool.references(block) > 0 and block not in gone)

    def returned_by(self, sequences: Iterable[Sequence]) -> set[int]:
        """The blocks that nobody would hold if all of these gave way."""
        held = Counter(block for each in sequences for table in each.blocks for block in table if block)
        return {block for block, count in held.items() if count == self._pool.references(block)}

    # --- a sequence's life ------------------------------------------------------------------------

    def open(self, sequence: Sequence) -> int:
        """New tables: the old may still be read by a step in flight. How many positions are there already and
        need not be computed: always fewer than there are tokens."""
        caller, chain = sequence.request.caller, sequence.chain
        holding = Holding(self._index.root(chain), self._index.turn, [], [])
        tokens = len(sequence.tokens)
        start = 0
        path: list[Node] = []
        for blocks in (tokens // BLOCK_TOKENS, (tokens - 1) // BLOCK_TOKENS):
            path = self._found.usable(self._index.match(chain, blocks), tokens)
            start = min(len(path) * BLOCK_TOKENS, tokens - 1)
            if self._found.share(sequence, path, start):
                break
        holding.path = path[: start // BLOCK_TOKENS]
        sequence.shared = self._in_common(holding.path, lambda block: self._pool.references(block) > 1)
        self._evictor.use(holding.path, caller.klass, session_of(sequence))
        self._open[sequence] = holding
        if not sequence.admitted:
            self._begin(sequence, holding, path)
            self._query_tokens += tokens
            self._hit_tokens += start
        return start

    def extend(self, sequence: Sequence, end: int) -> None:
        """Blocks for every position before `end`. Raises InvariantError when there is no room."""
        missing = blocks_for(end) - len(sequence.blocks[0])
        if missing <= 0:
            return
        session, ahead = session_of(sequence), _blocks_ahead(sequence, end)
        self._evictor.make_free(missing * self._layout.tables, session)
        for table in sequence.blocks:
            after = table[-1] if table else 0
            self._evictor.make_rows(missing, after, session)
            table.extend(self._pool.take(missing, after, ahead))
        sequence.held += missing * self._layout.tables

    def written(self, sequence: Sequence, end: int) -> None:
        """The step that ended before position `end` was applied, and went well."""
        holding = self._open[sequence]
        self._written.record(sequence, holding, end)
        for number, window in self._layout.sliding:
            table = sequence.blocks[number]
            place = first_seen(window, end)
            while place > 0 and table[place - 1]:
                place -= 1
                self._pool.release((table[place],))
                self._evictor.passed(holding.path[place])
                table[place] = 0
                sequence.held -= 1

    def distrust(self, sequence: Sequence) -> None:
        """It went wrong: what it wrote is not for others, unless they have gone on from there already."""
        self._written.distrust(self._open[sequence])

    def release(self, sequence: Sequence, now: float) -> None:
        """Everything goes back. The lists stay as they are: a step in flight reads them."""
        holding = self._open.pop(sequence)
        caller, session = sequence.request.caller, session_of(sequence)
        if holding.path and session is not None:
            reach(self._index, session, holding.path[-1])
        if sequence.ended:  # not one that gives way for want of blocks
            self._pins.pin(caller.klass, session, holding.path, now)
        for table in sequence.blocks:
            self._pool.release(block for block in table if block)
        self._evictor.leave(holding.path)
        sequence.blocks = []
        sequence.held = sequence.shared = 0

    @property
    def pins_end_s(self) -> float | None:
        """When the next pin is over; None without pins."""
        return self._pins.ends_s

    # --- a step's and the pool's ------------------------------------------------------------------

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """Blocks that the next step copies, old to new and in this order, before anything else."""
        return self._found.take_copies()

    def tick(self, now: float) -> None:
        """Time passes: what was pinned for so long is pinned no more."""
        self._pins.expire(now)

    def set_policy(self, policy: EvictionPolicy) -> None:
        """From now on."""
        heeded = policy.classes if policy.policy == "priority_lru" else ()
        self._evictor.set_priorities({each.name: each.priority for each in heeded})
        self._pins.set_classes(heeded)

    def yield_pins(self, blocks: int) -> None:
        """Gives up pins, the oldest first, while more than so many blocks are used."""
        while self.used > blocks and self._pins.yield_oldest():
            pass

    def resize(self, limit: int) -> dict[int, int]:
        """Moves the pool's limit, and evicts what finds no room; old place to new of the blocks that moved, which
        are to be copied. Not while a step in flight reads the lists. Raises InvariantError when more is used than
        there will be room for."""
        self.yield_pins(limit - 1)
        self._evictor.make_free(self._pool.capacity - (limit - 1), None, "shrink")
        moves = self._pool.resize(limit)
        if moves:
            for table in (table for sequence in self._open for table in sequence.blocks):
                table[:] = [moves.get(block, block) for block in table]
            self._found.move(moves)
            self._index.move(moves)
        self._pins.move(moves)
        return moves

    def audit(self, running: Iterable[Sequence]) -> None:
        """Raises InvariantError unless every block is in one place, every sequence holds what its next position
        sees and what is computed already, and the index says of each node who uses it."""
        if set(running) != self._open.keys():
            raise InvariantError("a sequence runs without tables, or has some and does not run")
        held: list[list[int]] = [self._found.held, *(pin.blocks for pin in self._pins)]
        for sequence in self._open:
            live = [block for table in sequence.blocks for block in table if block]
            if len(live) != sequence.held:
                raise InvariantError(f"request {sequence.request.id} holds {len(live)} blocks, not {sequence.held}")
            if not 0 <= sequence.shared <= sequence.held:
                raise InvariantError(f"request {sequence.request.id} shares more than it holds")
            if not self._covers(sequence):
                raise InvariantError(f"request {sequence.request.id} lacks a block that its next step sees")
            held.append(live)
        self._pool.audit(held, (block for node in self._index for block in node.blocks if block))
        self._index.audit()
        paths = [*(holding.path for holding in self._open.values()), *(pin.path for pin in self._pins)]
        paths += self._found.paths
        self._evictor.audit(Counter(node for path in paths for node in path))

    # --- inside -----------------------------------------------------------------------------------

    def _in_common(self, path: list[Node], is_held: Callable[[int], bool]) -> int:
        """Blocks of full tables in `path`, up to the first that is not: who holds a block holds those before it."""
        if (full := self._layout.full) is None:
            return 0
        places = sum(1 for _ in takewhile(is_held, (node.blocks[full] for node in path)))
        return places * (self._layout.tables - len(self._layout.sliding))

    def _begin(self, sequence: Sequence, holding: Holding, path: list[Node]) -> None:
        """It asks for the first time."""
        self._index.begin(holding.root, path)
        holding.turn = self._index.turn
        for node in path:
            node.ends = False
        last = len(sequence.request.prompt) // BLOCK_TOKENS
        if 0 < last <= len(path):
            path[last - 1].ends = True
        if (session := session_of(sequence)) is not None:
            go_on(self._index, self._evictor, session, path)

    def _covers(self, sequence: Sequence) -> bool:
        last = blocks_for(sequence.computed)
        for table, window in zip(sequence.blocks, self._layout.windows, strict=True):
            if len(table) < last or not all(table[first_seen(window, sequence.computed) :]):
                return False
        return True


def _blocks_ahead(sequence: Sequence, end: int) -> int:
    """How many more each of its tables will want: for what is known behind `end`, and a run to grow into."""
    known = blocks_for(len(sequence.tokens)) + RUN_BLOCKS
    return max(0, min(known, blocks_for(sequence.request.positions_at_most)) - blocks_for(end))
