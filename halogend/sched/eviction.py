"""What goes first when blocks are short: the order of everything in the index that nobody uses.

    1  blocks behind a window, unless a prompt that goes on from near there would need them
    2  what nobody can use or its session has left behind, the asker's own before others'
    3  leaves: lowest class first, then by when they will be asked for again and what they cost
    4  the blocks of 1 that were spared

Only leaves go, so a prefix that others share is the last of them. Owns that order and counts by reason. Must
never know sequences: whoever uses a node says so on the node.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping

from halogend.sched.blocks import BlockPool
from halogend.sched.buddy import RUN_BLOCKS
from halogend.sched.errors import InvariantError
from halogend.sched.layout import KvLayout, sliding_blocks
from halogend.sched.prefix import Node, PrefixIndex, Session

_REGULAR = 0.4  # of its interval: whose turns come closer to it than that comes regularly
_SELDOM = 0.3  # of its interval, at least, passes until something comes again
_DEEP_BLOCKS = 512  # a block this deep costs twice the computing of the first: attention looks back over all
_MOST_COST = 4.0  # times that of the first: a long conversation that is over goes some day
_LARGE_POOL_BLOCKS = 1024  # from so many on a run is a small part of the pool, and evicted as a whole
_FEW_LEAVES = 64  # are all looked at for each eviction; of more, so many that the cost stays the same


class Evictor:
    """Single writer: BlockTables."""

    def __init__(self, pool: BlockPool, index: PrefixIndex, layout: KvLayout) -> None:
        self._pool = pool
        self._index = index
        self._sliding = tuple(table for table, _ in layout.sliding)
        self._reach = max((sliding_blocks(window, 1) for _, window in layout.sliding), default=0)
        self._leaves: dict[Node, None] = {}
        self._stale: dict[Session | None, dict[Node, None]] = {}
        self._behind: dict[Node, None] = {}
        self._spared: dict[Node, None] = {}
        self._next: list[Node] = []
        self._ranked_in = 0  # the turn that `_next` is of
        self._priorities: dict[str, int] = {}
        self.evicted: Counter[str] = Counter()

    def set_priorities(self, priorities: dict[str, int]) -> None:
        """Of classes, by name; any other has 0."""
        self._priorities = priorities
        self._next.clear()

    # --- who may go -------------------------------------------------------------------------------

    def use(self, path: Iterable[Node], klass: str, session: Session | None) -> None:
        """One more relies on each: a request of this class and session."""
        priority = self._priorities.get(klass, 0)
        for node in path:
            if not (node.users or node.children):
                self._forget_leaf(node)
            if klass != node.klass and (not node.users or priority >= self._priorities.get(node.klass, 0)):
                node.klass = klass
            node.users += 1
            node.session = session
            node.stale = False

    def leave(self, path: list[Node]) -> None:
        """One less relies on each, and the blocks in its windows at the end are released."""
        for node in path:
            node.users -= 1
        if self._sliding:
            for node in path[-self._reach :]:
                self.passed(node)
        if path:
            self.rest(path[-1])

    def rest(self, node: Node) -> None:
        """It may go if nobody uses it and nothing follows it; so may its parents then that hold no block."""
        while not (node.users or node.children or node.parent is None):
            if any(node.blocks):
                leaves = self._stale.setdefault(node.session, {}) if self._is_useless(node) else self._leaves
                leaves[node] = None
                return
            node = self._remove(node)

    def grows(self, parent: Node) -> None:
        """Something is about to follow it."""
        if not parent.children:
            self._forget_leaf(parent)

    def discard(self, node: Node) -> None:
        """A leaf is out of the index, whose only user relies on it no more."""
        node.users -= 1
        self._remove(node)

    def passed(self, node: Node) -> None:
        """A sliding table's block of it was released: nobody's window may reach it any more."""
        self._spared.pop(node, None)
        self._behind[node] = None

    def abandon(self, node: Node) -> None:
        """Its session has gone on elsewhere."""
        node.stale = True
        if node in self._leaves:
            self._forget_leaf(node)
            self.rest(node)

    # --- who goes ---------------------------------------------------------------------------------

    def make_free(self, blocks: int, asker: Session | None, reason: str = "") -> None:
        """At least so many blocks are free afterwards. `reason` is counted instead of why this one and not that.
        Raises InvariantError when even everything would not do."""
        while (before := self._pool.free_count) < blocks:
            why = self._drop_some(blocks, asker)
            self._count(reason or why, before)

    def make_rows(self, count: int, after: int, asker: Session | None) -> None:
        """Evicts a little more, so that `count` blocks need not be scattered; in a pool where a run is a small part."""
        if self._pool.capacity < _LARGE_POOL_BLOCKS:
            return
        most = self._pool.free_count + count + RUN_BLOCKS
        while (
            self._pool.in_rows(after) < count
            and (before := self._pool.free_count) < most
            and (self._behind or self._stale or self._leaves)
        ):
            self._count(self._drop_some(before + 1, asker), before)

    def _count(self, reason: str, free_before: int) -> None:
        if (freed := self._pool.free_count - free_before) > 0:
            self.evicted[reason] += freed

    def _drop_some(self, blocks: int, asker: Session | None) -> str:
        if self._behind:
            self._drop_behind()
            return "window"
        if self._stale:
            leaves = self._stale.get(asker) or next(iter(self._stale.values()))
            self._drop_branch(next(iter(leaves)), blocks)
            return "superseded"
        if self._leaves:
            self._drop_branch(self._choose(), blocks)
            return "age"
        if self._spared:
            node = next(iter(self._spared))
            del self._spared[node]
            self._drop_sliding(node)
            return "window"
        raise InvariantError(f"{blocks} blocks are to be free, and there are {self._pool.free_count} without a user")

    def _drop_behind(self) -> None:
        node = next(iter(self._behind))
        del self._behind[node]
        if self._is_near_an_end(node):
            self._spared[node] = None
        else:
            self._drop_sliding(node)

    def _drop_sliding(self, node: Node) -> None:
        for table in self._sliding:
            if node.blocks[table] and self._pool.is_cached(node.blocks[table]):
                self._index.give_up(node, table)
        if not (node.users or node.children):
            self._forget_leaf(node)
            self.rest(node)

    def _is_near_an_end(self, node: Node) -> bool:
        """Whether a sequence may go on from a window that reaches it: where a prompt ended, branches part, or
        nothing follows."""
        for _ in range(self._reach):
            if node.ends or len(node.children) != 1:
                return True
            (node,) = node.children.values()
        return False

    def _drop_branch(self, node: Node, blocks: int) -> None:
        """From a leaf up, while more is needed and it is one branch still."""
        used, useless = node.habit.used, self._is_useless(node)
        run = RUN_BLOCKS if self._pool.capacity >= _LARGE_POOL_BLOCKS else 1
        while True:
            block = node.blocks[0]
            node = self._remove(node)
            alone = not (node.users or node.children or node.parent is None)
            if not alone or node.habit.used != used or self._is_useless(node) != useless:
                break
            if self._pool.free_count >= blocks and block % run == 0:
                break
        self.rest(node)

    def _is_useless(self, node: Node) -> bool:
        """As a leaf: nobody will come for it, or could go on from it."""
        return node.stale or not all(node.blocks[table] for table in self._sliding)

    def _choose(self) -> Node:
        while self._next:
            node = self._next.pop()
            if node in self._leaves and node.habit.used <= self._ranked_in:
                return node
        count = max(1, len(self._leaves) // _FEW_LEAVES)
        first, *others = heapq.nsmallest(count, self._leaves, key=self._rank)
        self._next, self._ranked_in = others[::-1], self._index.turn
        return first

    def _rank(self, node: Node) -> tuple[int, float, bool, int]:
        """The smallest goes first: what will be asked for latest, counted in turns. That is after its interval if
        it comes regularly; else the longer it has not been, the longer it will not be (Lindy's law), and what
        comes seldom will not come soon. What costs more to compute again stays longer."""
        habit = node.habit
        age = self._index.turn - habit.used
        to_come = max(age, _SELDOM * habit.interval)
        if habit.spread < _REGULAR * habit.interval:
            to_come = max(to_come, habit.interval - age)
        cost = 1 + min(node.depth / _DEEP_BLOCKS, _MOST_COST - 1)
        completes = self._pool.completes_buddy(node.blocks[0]) if node.blocks[0] else False
        return (self._priorities.get(node.klass, 0), -to_come / cost, not completes, habit.used)

    # --- bookkeeping ------------------------------------------------------------------------------

    def _forget_leaf(self, node: Node) -> None:
        self._leaves.pop(node, None)
        stale = self._stale.get(node.session)
        if stale is not None and stale.pop(node, self) is None and not stale:
            del self._stale[node.session]

    def _remove(self, node: Node) -> Node:
        self._forget_leaf(node)
        self._behind.pop(node, None)
        self._spared.pop(node, None)
        return self._index.remove(node)

    def audit(self, users: Mapping[Node, int]) -> None:
        """Raises InvariantError unless nodes have the users they should have, all leaves that nobody uses are known
        as such and nothing else, and so is every block that may go while its node stays."""
        leaves = self._leaves.keys() | {node for group in self._stale.values() for node in group}
        for node in self._index:
            if node.users != users.get(node, 0):
                raise InvariantError(f"a node has {users.get(node, 0)} users and counts {node.users}")
            if (node in leaves) == bool(node.users or node.children):
                raise InvariantError("a leaf is not known, or what is known as one is none")
            cached = any(node.blocks[t] and self._pool.is_cached(node.blocks[t]) for t in self._sliding)
            if node.users and cached and not (node in self._behind or node in self._spared):
                raise InvariantError("a block that nobody sees would stay as long as its node")
        for node in (*leaves, *self._behind, *self._spared):
            if self._index.find(node.key) is not node:
                raise InvariantError("a node that is in no tree could be evicted")
