"""What a running sequence has written: its full blocks, which the index gets to know, and what is distrusted."""

from __future__ import annotations

from dataclasses import dataclass

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool
from halogend.sched.eviction import Evictor
from halogend.sched.found import session_of
from halogend.sched.layout import KvLayout
from halogend.sched.prefix import Node, PrefixIndex
from halogend.sched.request import Sequence


@dataclass(slots=True)
class Holding:
    """What is known of an open sequence: `path` are the nodes of its first blocks, `own` those of them that
    it wrote."""

    root: Node
    turn: int
    path: list[Node]
    own: list[Node]

    @property
    def tip(self) -> Node:
        return self.path[-1] if self.path else self.root


class Written:
    """Hands what is full to the index. Single writer: BlockTables."""

    def __init__(self, pool: BlockPool, layout: KvLayout, index: PrefixIndex, evictor: Evictor) -> None:
        self._pool = pool
        self._layout = layout
        self._index = index
        self._evictor = evictor

    def record(self, sequence: Sequence, holding: Holding, end: int) -> None:
        """Every block that ends at position `end` or before it is full: the index knows it from now on, or did
        already."""
        while (place := len(holding.path)) < end // BLOCK_TOKENS:
            node = self._node(sequence, holding, place)
            self._evictor.use([node], sequence.request.caller.klass, session_of(sequence))
            holding.path.append(node)
            if place + 1 == len(sequence.request.prompt) // BLOCK_TOKENS:
                node.ends = True

    def distrust(self, holding: Holding) -> None:
        """What it wrote is not for others, unless they have gone on from there already."""
        while holding.own and holding.own[-1] is holding.tip and holding.tip.users == 1 and not holding.tip.children:
            holding.path.pop()
            self._evictor.discard(holding.own.pop())

    def _node(self, sequence: Sequence, holding: Holding, place: int) -> Node:
        key = sequence.chain.key(place)
        if (node := self._index.find(key)) is not None:
            self._swap(sequence, place, node)
            return node
        self._evictor.grows(holding.tip)
        node = self._index.add(key, holding.tip, [table[place] for table in sequence.blocks], holding.turn)
        holding.own.append(node)
        return node

    def _swap(self, sequence: Sequence, place: int, node: Node) -> None:
        """Another has written the same: its blocks serve both, and ours those tables whose it gave up."""
        for number, table in enumerate(sequence.blocks):
            block = node.blocks[number]
            if not block:
                self._index.adopt(node, number, table[place])
            elif block != table[place]:
                sequence.shared += self._layout.windows[number] is None and self._pool.references(block) > 0
                self._pool.share((block,))
                self._pool.release((table[place],))
                table[place] = block
