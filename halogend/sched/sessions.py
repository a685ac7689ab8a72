"""What callers say of their conversations: which branch of one is the newest, and what is pinned for a class.

Owns the pins. A pin holds blocks as a sequence does: what a request that goes on from there
would need. Must never know sequences or the order of eviction.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool
from halogend.sched.eviction import Evictor
from halogend.sched.layout import KvLayout, sliding_blocks
from halogend.sched.limits import SessionClass
from halogend.sched.prefix import Node, PrefixIndex, Session

_MOST_SESSIONS = 65_536  # remembered; the one unheard of for longest is forgotten


def go_on(index: PrefixIndex, evictor: Evictor, session: Session, path: list[Node]) -> None:
    """The session begins a turn from the end of `path`: what it had beside that is superseded, as far as nobody
    uses it or went on from it."""
    node = index.tips.get(session)
    while node is not None and node.parent is not None and not _is_on(node, path):
        if node.users or node.session != session or not all(child.stale for child in node.children.values()):
            break
        evictor.abandon(node)
        node = node.parent


def reach(index: PrefixIndex, session: Session, tip: Node) -> None:
    """The session's newest turn has come so far."""
    index.tips[session] = tip
    index.tips.move_to_end(session)
    if len(index.tips) > _MOST_SESSIONS:
        index.tips.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Pin:
    """`blocks` are held once each, for a request that goes on from the end of `path`; since `since_s`."""

    path: list[Node]
    blocks: list[int]
    since_s: float


class Pins:
    """What classes have pinned, the oldest first. Single writer: BlockTables."""

    def __init__(self, pool: BlockPool, layout: KvLayout, evictor: Evictor) -> None:
        self._pool = pool
        self._layout = layout
        self._evictor = evictor
        self._classes: dict[str, SessionClass] = {}
        self._pins: dict[str, OrderedDict[Hashable, Pin]] = {}
        self._held: dict[str, Counter[int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._pins.values()))

    def __iter__(self) -> Iterator[Pin]:
        return (pin for pins in self._pins.values() for pin in pins.values())

    @property
    def blocks(self) -> int:
        """Blocks that only pins hold."""
        held: Counter[int] = Counter()
        for blocks in self._held.values():
            held.update(blocks)
        return sum(self._pool.references(block) == count for block, count in held.items())

    def set_classes(self, classes: Iterable[SessionClass]) -> None:
        """From now on, for what is pinned already too."""
        self._classes = {each.name: each for each in classes if each.pin_quota and each.ttl_s}
        self._refit()

    def expire(self, now: float) -> None:
        """Nobody has gone on from there for as long as the class allows."""
        for name, pins in list(self._pins.items()):
            ttl_s = self._classes[name].ttl_s
            while pins and now - next(iter(pins.values())).since_s >= ttl_s:
                self._drop_oldest(name)

    def pin(self, name: str, session: Hashable, path: list[Node], now: float) -> None:
        """For a class that has a quota: as much of `path` as fits into it, instead of what was pinned for
        `session` before."""
        if name not in self._classes or not path:
            return
        if session in self._pins.get(name, ()):
            self._drop(name, session)
        path = self._fitting(path, self._quota(name))
        blocks = path_blocks(self._layout, path, len(path) * BLOCK_TOKENS)
        if not blocks or not all(blocks) or not self._fit(name, len(blocks)):
            return
        self._pool.share(blocks)
        self._evictor.use(path, name, path[-1].session)
        self._pins.setdefault(name, OrderedDict())[session] = Pin(path, blocks, now)
        self._held.setdefault(name, Counter()).update(blocks)

    def yield_oldest(self) -> bool:
        """Gives up the pin that is the oldest of all; False when there is none."""
        names = [name for name, pins in self._pins.items() if pins]
        if not names:
            return False
        self._drop_oldest(min(names, key=lambda name: next(iter(self._pins[name].values())).since_s))
        return True

    def move(self, moves: dict[int, int]) -> None:
        """Blocks have other places from now on, old to new, and the pool another size."""
        for pin in self:
            pin.blocks[:] = [moves.get(block, block) for block in pin.blocks]
        for name, held in self._held.items():
            self._held[name] = Counter({moves.get(block, block): count for block, count in held.items()})
        self._refit()

    def _refit(self) -> None:
        for name in list(self._pins):
            self._fit(name, 0)

    def _fitting(self, path: list[Node], quota: int) -> list[Node]:
        """As much of it as a quota of blocks holds, from its beginning."""
        sliding = sum(sliding_blocks(window, 1) for _, window in self._layout.sliding)
        full = self._layout.tables - len(self._layout.sliding)
        return path[: max(0, quota - sliding) // full] if full else path

    def _quota(self, name: str) -> int:
        known = self._classes.get(name)
        return int(known.pin_quota * self._pool.capacity) if known else 0

    def _fit(self, name: str, blocks: int) -> bool:
        """Gives up the class's oldest pins until so many more blocks are within its quota."""
        quota = self._quota(name)
        if blocks > quota:
            return False
        while len(self._held.get(name, ())) + blocks > quota:
            self._drop_oldest(name)
        return True

    def _drop_oldest(self, name: str) -> None:
        self._drop(name, next(iter(self._pins[name])))

    def _drop(self, name: str, session: Hashable) -> None:
        pin = self._pins[name].pop(session)
        held = self._held[name]
        for block in pin.blocks:
            held[block] -= 1
            if not held[block]:
                del held[block]
        if not self._pins[name]:
            del self._pins[name], self._held[name]
        self._pool.release(pin.blocks)
        self._evictor.leave(pin.path)


def path_blocks(layout: KvLayout, path: list[Node], start: int) -> list[int]:
    """What a sequence holds that goes on from position `start`, behind or in the last block of `path`: a full
    table's blocks of the whole path, a sliding one's that its window reaches. 0 for one that was given up."""
    blocks: list[int] = []
    for table, window in enumerate(layout.windows):
        blocks += [node.blocks[table] for node in path[first_seen(window, start) :]]
    return blocks


def first_seen(window: int | None, position: int) -> int:
    """The first block that a layer of this window reads when it computes `position`."""
    return 0 if window is None else max(0, position - window + 1) // BLOCK_TOKENS


def _is_on(node: Node, path: list[Node]) -> bool:
    return node.depth <= len(path) and path[node.depth - 1] is node
