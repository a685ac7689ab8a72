"""What classes pin: how many there are, what becomes of the older one, and when they end."""

from __future__ import annotations

from support.sched_world import World, make_limits

from halogend.sched.layout import KvLayout
from halogend.sched.limits import EvictionPolicy, SessionClass
from halogend.sched.request import Caller

EVERYTHING = KvLayout((None,))


def make_world(*, blocks: int = 65, quota: float = 0.5, layout: KvLayout = EVERYTHING) -> World:
    policy = EvictionPolicy("priority_lru", (SessionClass("gold", 1, quota, 900.0),))
    limits = make_limits(eviction=policy, watermarks=None, long=None, max_batch=2)
    return World(limits, blocks=blocks, layout=layout)


def pins(world: World) -> int:
    return len(world.scheduler._tables._pins)


def test_the_same_prompt_is_pinned_once_however_often_it_is_asked() -> None:
    world = make_world()
    for _ in range(20):
        world.ask(tuple(range(40)), 1, caller=Caller(klass="gold"))
        world.drain()
    assert (pins(world), world.scheduler.reuse.blocks_pinned) == (1, 2)


def test_a_class_has_no_more_pins_than_its_quota_has_blocks() -> None:
    world = make_world(quota=0.1)
    for number in range(20):
        world.ask(tuple(range(40)), 1, caller=Caller(klass="gold", session=str(number)))
        world.drain()
    assert (pins(world), world.scheduler.reuse.blocks_pinned) == (6, 2)


def test_what_is_asked_again_is_pinned_from_then_on() -> None:
    world = make_world()
    assert world.scheduler.pins_end_s is None
    for now in (0.0, 500.0):
        world.now = now
        world.ask(tuple(range(40)), 1, caller=Caller(klass="gold"))
        world.drain()
        assert world.scheduler.pins_end_s == now + 900.0
    world.now = 1400.0
    world.step()
    assert world.scheduler.pins_end_s is None
    assert world.scheduler.reuse.blocks_pinned == 0


def test_a_conversation_shorter_than_a_window_is_pinned_for_what_it_has() -> None:
    """Two blocks of each of six tables, and a quota far below what full windows take."""
    world = make_world(quota=0.3, layout=KvLayout((None, *(512,) * 5)))
    world.ask(tuple(range(40)), 1, caller=Caller(klass="gold"))
    world.drain()
    assert (pins(world), world.scheduler.reuse.blocks_pinned) == (1, 12)


def test_a_conversation_over_its_quota_keeps_what_was_pinned_while_no_more_can_be() -> None:
    """Where the quota ends, the window's blocks were evicted long ago."""
    world = make_world(blocks=141, quota=0.3, layout=KvLayout((None, 20)))
    caller = Caller(klass="gold", session="a")
    prompt = tuple((i * 7) % 90 for i in range(200))
    world.ask(prompt, 1, caller=caller)
    world.drain()
    pinned = world.scheduler.reuse.blocks_pinned
    assert pinned > 0
    world.now = 500.0
    world.ask((*prompt, *((i * 5) % 80 for i in range(800))), 120, caller=caller)
    for _ in range(8):
        world.step()
    world.ask(tuple((i * 11) % 89 for i in range(500)), 300)  # beside it, for want of blocks
    world.drain()
    assert sum(world.scheduler.reuse.evictions.values()) > 0
    assert world.scheduler.reuse.blocks_pinned == pinned
    assert world.scheduler.pins_end_s is not None
    assert world.scheduler.pins_end_s >= 500.0 + 900.0  # it was used


def test_a_longer_pin_takes_the_place_of_the_conversations_older_one() -> None:
    world = make_world()
    caller = Caller(klass="gold", session="a")
    for tokens in (40, 100):
        world.ask(tuple(range(tokens)), 1, caller=caller)
        world.drain()
    assert (pins(world), world.scheduler.reuse.blocks_pinned) == (1, 6)
