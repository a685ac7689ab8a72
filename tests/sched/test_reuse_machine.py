"""Thousands of steps of conversations on a pool of 256 blocks, an audit and a naive search beside every one; 20,000
with the slow ones."""

from __future__ import annotations

import pytest
from support.reuse_traffic import ReuseWorld, Traffic

from halogend.sched.layout import KvLayout

FULL = KvLayout((None,))
GEMMA = KvLayout((None, 20, 20, 35))
ALL_SLIDING = KvLayout((24,))


@pytest.mark.parametrize(
    ("layout", "depth", "blocks", "worlds"),
    [
        pytest.param(FULL, 0, 256, 4, marks=pytest.mark.slow),
        (FULL, 1, 256, 2),
        pytest.param(FULL, 1, 256, 5, marks=pytest.mark.slow),
        (FULL, 1, 40, 1),
        pytest.param(GEMMA, 0, 256, 4, marks=pytest.mark.slow),
        (GEMMA, 1, 256, 2),
        pytest.param(GEMMA, 1, 256, 5, marks=pytest.mark.slow),
        (ALL_SLIDING, 1, 60, 1),
    ],
    ids=[
        "full",
        "full ahead",
        "full ahead long",
        "full crowded",
        "gemma",
        "gemma ahead",
        "gemma ahead long",
        "all sliding",
    ],
)
def test_random_conversations(layout: KvLayout, depth: int, blocks: int, worlds: int) -> None:
    for seed in range(worlds):
        world = ReuseWorld(blocks=blocks, depth=depth, layout=layout)
        traffic = Traffic(world, seed)
        for _ in range(1000):
            traffic.turn()
        world.failing = frozenset()
        world.drain()
        reuse = world.scheduler.reuse
        assert reuse.hit_tokens > reuse.query_tokens / 10
        assert sum(reuse.evictions.values()) > 0
