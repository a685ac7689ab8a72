"""Conversations at random against a scheduler, and what a naive search of the whole pool says can be reused.

The search knows nothing of trees, keys or users: it reads from the runner's memory what is in every block that the
pool keeps, and takes the longest beginning of a prompt of which every table still has what is seen from there.
"""

from __future__ import annotations

import random
from dataclasses import replace

from support.sched_world import VOCAB, World, make_limits

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.layout import KvLayout
from halogend.sched.limits import EvictionPolicy, SessionClass
from halogend.sched.request import Caller, Sequence

CLASSES = (SessionClass("gold", 10, 0.2, 5.0), SessionClass("tin", -1, 0.05, 2.0))
POLICIES = (EvictionPolicy(), EvictionPolicy("priority_lru", CLASSES), EvictionPolicy("priority_lru", CLASSES[:1]))


class ReuseWorld(World):
    """Checks at each admission that no more and no less is reused than the naive search finds."""

    def __init__(self, *, blocks: int, depth: int, layout: KvLayout, max_batch: int = 6) -> None:
        limits = make_limits(max_batch=max_batch, step_tokens=96, watermarks=None, max_gap_s=0.0)
        super().__init__(limits, blocks=blocks, depth=depth, layout=layout, stride=7)
        self.limits = limits
        self.reused: list[int] = []
        self._open = self.scheduler._tables.open
        self.scheduler._tables.open = self._checked_open  # type: ignore[method-assign]  # the seam to watch

    def _checked_open(self, sequence: Sequence) -> int:
        expected = self.search(sequence)
        found = self._open(sequence)
        known = len(sequence.tokens)
        crowded = self.pool.free_count + self.pool.cached_count < 2 * self.layout.tables  # the last one is free again
        without_copy = found == self.search(sequence, (known - 1) // BLOCK_TOKENS)
        assert found == expected or (crowded and expected == known - 1 and without_copy)
        assert 0 <= found < known
        self.reused.append(found)
        return found

    def search(self, sequence: Sequence, most: int | None = None) -> int:
        """How many positions are there of those it needs to go on, the last one never counted."""
        known = len(sequence.tokens)
        states = [hash(sequence.request.caller.scope)]
        for token in sequence.tokens:
            states.append(hash((states[-1], token)))
        kept = (block for block, mark in enumerate(self.pool._kept) if mark)
        there = {self.runner._memory.get((block, BLOCK_TOKENS - 1)) for block in kept}
        for blocks in range(known // BLOCK_TOKENS if most is None else most, 0, -1):
            start = min(blocks * BLOCK_TOKENS, known - 1)
            if all(
                (table, end - 1, states[end]) in there
                for table, window in enumerate(self.layout.windows)
                for end in range(BLOCK_TOKENS, blocks * BLOCK_TOKENS + 1, BLOCK_TOKENS)
                if window is None or end > max(0, start - window + 1)
            ):
                return start
        return 0


class Traffic:
    """Drives a world by a seed. What was said is gone on with, repeated, taken back or sent from elsewhere."""

    def __init__(self, world: ReuseWorld, seed: int) -> None:
        self.world = world
        self._draw = random.Random(seed)
        self._system = tuple(self._draw.randrange(VOCAB) for _ in range(70))
        self._limit = world.pool.limit

    def turn(self) -> None:
        """One thing happens, then a step is made."""
        draw, world = self._draw, self.world
        world.now += draw.random() / 4
        world.failing = frozenset(draw.sample(world.alive, 1)) if world.alive and draw.random() < 0.02 else frozenset()
        match draw.choices(("ask", "abort", "resize", "policy", "nothing"), (40, 4, 2, 1, 53))[0]:
            case "ask":
                if len(world.alive) < 12:
                    self._ask()
            case "abort":
                if world.alive:
                    world.abort(draw.choice(world.alive))
            case "resize":
                if world.in_flight == 0:
                    world.resize(draw.randint(self._limit // 3, self._limit))
            case "policy":
                world.limits = replace(world.limits, eviction=draw.choice(POLICIES))
                world.scheduler.update(world.limits)
        world.step()

    def _ask(self) -> None:
        draw = self._draw
        caller = Caller(
            scope=draw.choice((b"a", b"b")),
            session=draw.choice(("", "", "x", "y", "z")),
            klass=draw.choice(("", "gold", "tin")),
        )
        self.world.ask(self._prompt(), draw.randint(1, 40), frozenset({draw.randrange(VOCAB)}), caller)

    def _prompt(self) -> tuple[int, ...]:
        draw = self._draw
        new = tuple(draw.randrange(VOCAB) for _ in range(draw.randint(1, 40)))
        if not self.world.outcomes or draw.random() < 0.15:
            return (*self._system[: draw.randint(0, 70)], *new)
        before = self.world.outcomes[draw.randrange(max(0, len(self.world.outcomes) - 20), len(self.world.outcomes))]
        said = (*before.request.prompt, *before.tokens)
        said = said[:220]
        match draw.randrange(4):
            case 0:
                return said
            case 1:
                return said[: max(1, len(said) // BLOCK_TOKENS * BLOCK_TOKENS)]  # whole blocks
            case 2:
                return (*said[: draw.randint(1, len(said))], *new)
        return (*said, *new)
