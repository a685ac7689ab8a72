"""What is in the blocks: a tree with a node for each full logical block that was computed.

Owns the nodes, how often each is asked for, and that the pool keeps their blocks. Must never know who runs or
what has to go when memory is short, and counts turns instead of time: a turn is a request that begins.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from halogend.sched.blocks import BlockPool
from halogend.sched.chain import Chain
from halogend.sched.errors import InvariantError

_LEAST_SHARE = 0.1  # of the newest observation in an estimate, however many came before it

Session = tuple[bytes, str]
"""A conversation: the scope, and the name that the caller gave it there."""


@dataclass(slots=True)
class Habit:
    """How often something is asked for. `used` is the turn of the last time, `interval` the estimated turns
    from one time to the next, `spread` by how much it was off; both are guesses until it comes again."""

    used: int
    interval: float
    spread: float
    seen: int = 1

    def note(self, turn: int) -> None:
        """It is asked for in this turn: exponential smoothing, after an average of the first few."""
        gap = turn - self.used
        self.seen += 1
        share = max(_LEAST_SHARE, 1 / self.seen)
        self.spread += share * (abs(gap - self.interval) - self.spread)
        self.interval += share * (gap - self.interval)
        self.used = turn


class Node:
    """A full logical block that follows those of its ancestors.

    `blocks` has a block for each table, 0 where a sliding table's was given up. `users` counts who relies on it,
    and so on all its ancestors: running sequences and pins. `ends`: the newest prompt through here ends with it.
    `stale`: its session has gone on elsewhere. `klass` and `session` are of the last who used it. Of the children
    that were ever `born`, `returned` were asked for again, the first time after `gap` turns.
    """

    __slots__ = (
        "blocks",
        "born",
        "children",
        "depth",
        "ends",
        "gap",
        "habit",
        "key",
        "klass",
        "parent",
        "returned",
        "session",
        "stale",
        "users",
    )

    def __init__(self, key: bytes, parent: Node | None, blocks: list[int], habit: Habit) -> None:
        self.key = key
        self.parent = parent
        self.blocks = blocks
        self.habit = habit
        self.depth: int = parent.depth + 1 if parent else 0  # blocks up to its end
        self.children: dict[bytes, Node] = {}
        self.born = 0
        self.returned = 0
        self.gap = 0.0
        self.users = 0
        self.ends = False
        self.stale = False
        self.klass = ""
        self.session: Session | None = None


class PrefixIndex:
    """The tree. Its roots, one a scope, stand for nothing at all and hold no blocks. `tips` has what is left of
    the newest branch of each session. Single writer: BlockTables."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._nodes: dict[bytes, Node] = {}
        self._roots: dict[bytes, Node] = {}
        self._gone: OrderedDict[bytes, Habit] = OrderedDict()
        self.tips: OrderedDict[Session, Node] = OrderedDict()
        self.turn = 0
        self._surprise = 1.0  # how far off intervals are lately, as a share of themselves

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def root(self, chain: Chain) -> Node:
        root = self._roots.get(chain.root)
        if root is None:
            turns = len(self._roots) + 1
            root = self._roots[chain.root] = Node(chain.root, None, [], Habit(self.turn, turns, turns))
        return root

    def match(self, chain: Chain, most: int) -> list[Node]:
        """The nodes of the first blocks of a sequence, as far as they are there and at most `most`."""
        path: list[Node] = []
        for place in range(most):
            node = self._nodes.get(chain.key(place))
            if node is None:
                break
            path.append(node)
        return path

    def find(self, key: bytes) -> Node | None:
        return self._nodes.get(key)

    def begin(self, root: Node, path: Sequence[Node]) -> None:
        """A new turn, which asks for these. There is one root a scope, and scopes are few."""
        self.turn += 1
        root.habit.note(self.turn)
        if path:
            habit = path[-1].habit
            off = abs(self.turn - habit.used - habit.interval) / habit.interval if habit.interval else 1.0
            self._surprise += _LEAST_SHARE * (min(1.0, off) - self._surprise)
        for node in path:
            if node.parent is not None:
                _note(node.habit, node.parent, self.turn)

    def add(self, key: bytes, parent: Node, blocks: list[int], turn: int) -> Node:
        """A node for what was just written by a request of that turn; the pool keeps its blocks, which
        somebody holds (0: none)."""
        node = Node(key, parent, blocks, self._habit(key, parent, turn))
        for block in blocks:
            if block:
                self._pool.keep(block)
        parent.children[key] = node
        parent.born += 1
        self._nodes[key] = node
        return node

    def adopt(self, node: Node, table: int, block: int) -> None:
        """What the node had given up was written once more."""
        self._pool.keep(block)
        node.blocks[table] = block

    def give_up(self, node: Node, table: int) -> None:
        """The node goes on without its block of this table."""
        self._pool.forget(node.blocks[table])
        node.blocks[table] = 0

    def remove(self, node: Node) -> Node:
        """Takes a leaf that nobody uses out of the tree; its parent. How often a branch was asked for is
        remembered: it may come again. Raises InvariantError for a node that others rely on."""
        parent = node.parent
        if node.users or node.children or parent is None:
            raise InvariantError(f"a node with {node.users} users and {len(node.children)} children is to go")
        for block in node.blocks:
            if block:
                self._pool.forget(block)
        del self._nodes[node.key]
        del parent.children[node.key]
        if parent.born > 1:
            self._remember(node)
        if node.session is not None and self.tips.get(node.session) is node:
            self.tips[node.session] = parent
        node.parent = None  # whoever still knows it keeps nothing else alive
        return parent

    def move(self, moves: dict[int, int]) -> None:
        """Blocks have other places from now on, old to new."""
        for node in self._nodes.values():
            node.blocks = [moves.get(block, block) for block in node.blocks]

    def audit(self) -> None:
        """Raises InvariantError unless the tree is one and no two nodes have a block in common."""
        blocks = [block for node in self for block in node.blocks if block]
        if len(set(blocks)) != len(blocks):
            raise InvariantError("two nodes have a block in common")
        for node in self:
            parent = node.parent
            if parent is None or parent.children.get(node.key) is not node or parent.depth != node.depth - 1:
                raise InvariantError("a node is not its parent's child")
            if parent not in (self._nodes.get(parent.key), self._roots.get(parent.key)):
                raise InvariantError("a node's parent is in no tree")
            if node.users > parent.users and parent.parent is not None:
                raise InvariantError("a node has users that do not use its parent")

    def _habit(self, key: bytes, parent: Node, turn: int) -> Habit:
        """Of a new node: its own if it was here before; as its parent's while it is the only way on; else the
        parent's turns are shared by all ways on, and this one's share is not known yet."""
        if (habit := self._gone.pop(key, None)) is not None:
            _note(habit, parent, turn)
            return habit
        up = parent.habit
        if parent.born == 0 and parent.parent is not None:
            return Habit(up.used, up.interval, up.spread, up.seen)
        turns = parent.gap if parent.returned else up.interval * (len(parent.children) + 1)
        turns *= (parent.born + 2) / (parent.returned + 2)
        return Habit(turn, turns, turns * self._surprise)

    def _remember(self, node: Node) -> None:
        self._gone[node.key] = node.habit
        if len(self._gone) > self._pool.capacity:
            self._gone.popitem(last=False)


def _note(habit: Habit, parent: Node, turn: int) -> None:
    """A child of `parent` is asked for in this turn."""
    if habit.seen == 1:
        parent.returned += 1
        parent.gap += max(_LEAST_SHARE, 1 / parent.returned) * (turn - habit.used - parent.gap)
    habit.note(turn)
