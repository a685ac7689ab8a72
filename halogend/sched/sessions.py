"""What callers say of their conversations: which branch of one is the newest, and what is pinned for a class.

Owns the pins. A pin holds blocks as a sequence does: what a request that goes on from there
would need. Must never know sequences or the order of eviction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool
from halogend.sched.eviction import Evictor
from halogend.sched.layout import KvLayout
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
        self._resized = False

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
        if self._resized:
            self._resized = False
            self._refit()
        for name, pins in list(self._pins.items()):
            ttl_s = self._classes[name].ttl_s
            while pins and now - next(iter(pins.values())).since_s >= ttl_s:
                self._drop_oldest(name)

    @property
    def ends_s(self) -> float | None:
        """When the next of them is over; None when there is none."""
        ends = (pin.since_s + self._classes[name].ttl_s for name, pin in self._oldest())
        return min(ends, default=None)

    def pin(self, name: str, session: Session | None, path: list[Node], now: float) -> None:
        """For a class that has a quota: as much of `path` as fits into it, instead of what was pinned for
        `session` before, or without one for what ends there. A window's blocks may be gone where the quota ends:
        what was pinned before stays then."""
        if name not in self._classes:
            return
        path = self._fitting(path, self._quota(name))
        blocks = path_blocks(self._layout, path, len(path) * BLOCK_TOKENS)
        if not blocks or len(blocks) > self._quota(name):
            return
        whose: Hashable = session or path[-1].key
        if not all(blocks):
            self._renew(name, whose, path, now)
            return
        self._pool.share(blocks)  # first: some of them may be held by what is dropped now
        self._evictor.use(path, name, path[-1].session)
        if whose in self._pins.get(name, ()):
            self._drop(name, whose)
        self._fit(name, blocks)
        self._pins.setdefault(name, OrderedDict())[whose] = Pin(path, blocks, now)
        self._held.setdefault(name, Counter()).update(blocks)

    def yield_oldest(self) -> bool:
        """Gives up the pin that is the oldest of all; False when there is none."""
        oldest = min(self._oldest(), key=lambda each: each[1].since_s, default=None)
        if oldest is None:
            return False
        self._drop_oldest(oldest[0])
        return True

    def move(self, moves: dict[int, int]) -> None:
        """Blocks have other places from now on, old to new, and the pool another size."""
        for pin in self:
            pin.blocks[:] = [moves.get(block, block) for block in pin.blocks]
        for name, held in self._held.items():
            self._held[name] = Counter({moves.get(block, block): count for block, count in held.items()})
        self._resized = True  # perhaps for a moment: quotas are of the pool that the next step has

    def _oldest(self) -> Iterator[tuple[str, Pin]]:
        """Of each class."""
        return ((name, next(iter(pins.values()))) for name, pins in self._pins.items() if pins)

    def _renew(self, name: str, whose: Hashable, path: list[Node], now: float) -> None:
        """What is pinned already was gone on from now, if it is a part of `path`."""
        pins = self._pins.get(name)
        if pins is not None and whose in pins and _is_on(pins[whose].path[-1], path):
            pins[whose] = replace(pins[whose], since_s=now)
            pins.move_to_end(whose)

    def _refit(self) -> None:
        for name in list(self._pins):
            self._fit(name, ())

    def _fitting(self, path: list[Node], quota: int) -> list[Node]:
        """As much of it as a quota of blocks holds, from its beginning."""
        lengths = range(BLOCK_TOKENS, len(path) * BLOCK_TOKENS + 1, BLOCK_TOKENS)
        return path[: bisect_right(lengths, quota, key=lambda tokens: self._layout.blocks_for_request(tokens, 1))]

    def _quota(self, name: str) -> int:
        known = self._classes.get(name)
        return int(known.pin_quota * self._pool.capacity) if known else 0

    def _fit(self, name: str, blocks: Collection[int]) -> None:
        """Gives up the class's oldest pins until these blocks are within its quota besides what is left, and there
        are not more pins than blocks of it."""
        quota = self._quota(name)
        while pins := self._pins.get(name):
            held = self._held[name]
            if len(held) + sum(block not in held for block in blocks) <= quota and len(pins) + bool(blocks) <= quota:
                return
            self._drop_oldest(name)

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
