"""What requests hold in common takes room once: who may come in, and who is made to give way for whom."""

from __future__ import annotations

import pytest
from support.sched_world import VOCAB, World, make_limits

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.layout import KvLayout
from halogend.sched.limits import EvictionPolicy, SessionClass, Watermarks
from halogend.sched.request import Caller

LOW, HIGH = Caller(), Caller(klass="high")


def distinct(blocks: int, seed: int) -> tuple[int, ...]:
    return tuple((seed * i * i + 3 * i) % VOCAB for i in range(blocks * BLOCK_TOKENS))


def computed(world: World, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The prompt, which the pool keeps from now on."""
    world.ask((*prompt, 1), 1)
    world.drain()
    return prompt


def most_at_once(world: World) -> int:
    most = 0
    while world.step():
        most = max(most, world.scheduler.stats.running)
    return most


@pytest.mark.parametrize("marks", [None, Watermarks()], ids=["no marks", "marks"])
@pytest.mark.parametrize("blocks", [30, 46, 60])
def test_a_common_prefix_takes_room_once(blocks: int, marks: Watermarks | None) -> None:
    """K3's load: one long beginning, many who go on from it."""
    world = World(make_limits(max_batch=16, long=None, watermarks=marks, step_tokens=2048), blocks=101)
    common = computed(world, distinct(blocks, 1))
    for number in range(12):
        world.ask((*common, *(number,) * 8), 20)
    assert most_at_once(world) == 12
    assert world.scheduler.stats.preemptions == 0
    world.drain()


def test_a_common_prefix_is_counted_with_windows_too() -> None:
    layout = KvLayout((None, 20))
    world = World(make_limits(max_batch=16, watermarks=None, step_tokens=2048), blocks=201, layout=layout)
    common = computed(world, distinct(60, 1))
    for number in range(12):
        world.ask((*common, *(number,) * 8), 20)
    assert most_at_once(world) == 12
    world.drain()


def test_those_who_compute_the_same_at_once_hold_it_once() -> None:
    world = World(make_limits(max_batch=2, watermarks=None, step_tokens=2048), blocks=101)
    prompt = (*distinct(30, 1), 5)
    for _ in range(2):
        world.ask(prompt, 100)
    world.step()
    assert sum(each.own for each in world.scheduler.running) == world.scheduler.stats.blocks_used
    assert world.scheduler.stats.blocks_used < 40
    assert 0 < world.scheduler.blocks_reserved <= 100
    world.drain()


def test_what_runs_may_grow_beside_what_it_shares() -> None:
    """A prefix that is counted once is not given back once for each who ends: nobody gives way for it."""
    world = World(make_limits(max_batch=16, watermarks=None, step_tokens=2048), blocks=101)
    for _ in range(8):
        world.ask(distinct(1, 7), 90)  # teaches that all of max_tokens is generated
        world.drain()
    common = computed(world, distinct(50, 1))
    for number in range(16):
        world.ask((*common, *(number,) * 8), 90)
    assert 6 < most_at_once(world) <= 9
    assert world.scheduler.stats.preemptions == 0
    world.drain()


def crowded(*, pinned: bool = False) -> World:
    """One of a high priority with 31 blocks, and six low ones that have 20 in common and one each."""
    classes = (SessionClass("high", 5), SessionClass("gold", 0, 0.25 if pinned else 0.0, 1e9 if pinned else 0.0))
    limits = make_limits(
        max_batch=32,
        long=None,
        watermarks=None,
        min_free_ratio=0.0,
        step_tokens=2048,
        eviction=EvictionPolicy("priority_lru", classes),
    )
    world = World(limits, blocks=101)
    common = distinct(20, 1)
    world.ask((*common, 1), 1, caller=Caller(klass="gold"))
    world.drain()
    world.ask(distinct(30, 5), 100, caller=HIGH)
    for number in range(6):
        world.ask((*common, *(number,) * 8), 200, caller=LOW)
    for _ in range(4):
        world.step()
    assert world.scheduler.stats.running == 7
    return world


def test_nobody_gives_way_when_what_all_share_would_not_do() -> None:
    world = crowded()
    world.ask(distinct(75, 11), 10, caller=HIGH)
    for _ in range(3):
        world.step()
    assert world.scheduler.stats.preemptions == 0
    assert world.scheduler.stats.running == 7
    world.drain()


@pytest.mark.parametrize("pinned", [False, True])
def test_a_pinned_prefix_does_not_come_back(pinned: bool) -> None:
    """60 blocks fit beside 31 of 100 unless 20 are pinned."""
    world = crowded(pinned=pinned)
    world.ask(distinct(60, 11), 10, caller=HIGH)
    world.step()
    came = max(world.outcomes) in world.first_seen
    assert (came, world.scheduler.stats.preemptions > 0) == (not pinned, not pinned)
    world.drain()


def test_who_shares_with_those_who_give_way_needs_what_they_had() -> None:
    """Its own beginning is theirs: when they have gone it must have room for it itself."""
    world = crowded()
    world.ask((*distinct(20, 1), *distinct(55, 11)), 10, caller=HIGH)  # 75 blocks, 20 of them held by low ones only
    for _ in range(3):
        world.step()
    assert world.scheduler.stats.preemptions == 0
    world.drain()
