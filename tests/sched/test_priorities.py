"""Classes and keys: who goes first, who gives way, and whose share it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sched_world import World, make_limits

from halogend.sched.fairness import FairShares
from halogend.sched.limits import EvictionPolicy, LongLane, SessionClass, Watermarks
from halogend.sched.request import Caller

DEPTHS = pytest.mark.parametrize("depth", [0, 1])
HIGH, LOW = Caller(klass="high"), Caller()


def running(world: World) -> set[int]:
    return {s.request.id for s in world.scheduler._running}


def crowded(depth: int, **changes: object) -> World:
    """Two low requests in all the places there are."""
    world = World(make_limits(**({"max_batch": 2} | changes)), blocks=64, depth=depth)
    for _ in range(2):
        world.add(20, 100, caller=LOW)
    for _ in range(5):
        world.step()
    return world


@DEPTHS
def test_a_higher_request_takes_the_place_of_the_newest_of_the_lowest(depth: int) -> None:
    """A7: slots are full, and it does not wait behind those below it."""
    world = crowded(depth)
    world.add(20, 5, caller=HIGH)
    world.step()
    assert running(world) == {0, 2}
    world.drain()


@DEPTHS
def test_who_gave_way_is_back_before_those_of_its_class_that_never_ran(depth: int) -> None:
    """A7: and not before those of a higher one."""
    world = crowded(depth)
    world.add(20, 30, caller=LOW)
    world.add(20, 20, caller=HIGH)
    world.step()
    assert running(world) == {0, 3}
    while not world.outcomes[3].end:
        world.step()
    for _ in range(3):
        world.step()
    assert running(world) == {0, 1}
    world.drain()


def test_equals_do_not_take_each_others_places() -> None:
    world = crowded(0)
    world.add(20, 5, caller=LOW)
    for _ in range(10):
        world.step()
    assert running(world) == {0, 1}
    assert world.scheduler.stats.preemptions == 0


@DEPTHS
def test_when_blocks_run_out_the_newest_of_the_lowest_gives_way(depth: int) -> None:
    world = World(make_limits(max_batch=8), blocks=33, depth=depth)
    for caller in (LOW, HIGH, LOW, HIGH):
        world.add(60, 120, caller=caller)
    gone: list[int] = []
    while world.scheduler.stats.running < 4:
        world.step()
    while world.scheduler.stats.preemptions < 2:
        world.step()
        gone += [number for number in (0, 1, 2, 3) if number not in running(world) and number not in gone]
    assert gone == [2, 0]
    world.drain()


@DEPTHS
@pytest.mark.parametrize("long", [None, LongLane(200, 1)])
def test_nobody_lower_comes_in_while_a_higher_one_waits_for_room(depth: int, long: LongLane | None) -> None:
    world = World(make_limits(max_batch=8, long=long, watermarks=None), blocks=33, depth=depth)
    world.add(300, 40, caller=HIGH)
    for _ in range(8):
        world.step()
    world.add(300, 40, caller=HIGH)
    world.add(20, 20, caller=LOW)
    while not world.outcomes[0].end:
        world.step()
        assert 2 not in running(world)
    world.drain()


@DEPTHS
def test_a_higher_request_makes_room_for_itself_above_the_hard_mark(depth: int) -> None:
    limits = make_limits(max_batch=8, watermarks=Watermarks(0.3, 0.5), step_tokens=512)
    world = World(limits, blocks=33, depth=depth)
    for _ in range(2):
        world.add(130, 100, caller=LOW)
    for _ in range(4):
        world.step()
    world.add(60, 5, caller=HIGH)
    world.step()
    assert 2 in running(world)
    world.drain()


def test_nobody_is_made_to_give_way_in_vain() -> None:
    """What a higher one needs is held by one of its own class."""
    world = World(make_limits(max_batch=8, watermarks=None), blocks=33)
    world.add(400, 60, caller=HIGH)
    world.add(10, 60, caller=LOW)
    for _ in range(10):
        world.step()
    world.add(200, 60, caller=HIGH)
    for _ in range(10):
        world.step()
    assert running(world) == {0, 1}
    assert world.scheduler.stats.preemptions == 0
    world.drain()


# --- an edit of a class -----------------------------------------------------------------------------------


def classes(**priorities: int) -> EvictionPolicy:
    return EvictionPolicy("priority_lru", tuple(SessionClass(name, each) for name, each in priorities.items()))


@DEPTHS
def test_a_class_that_is_raised_goes_first_though_it_waits_already(depth: int) -> None:
    limits = make_limits(max_batch=1, eviction=classes(gold=0))
    world = World(limits, blocks=64, depth=depth)
    world.add(20, 30)
    world.step()
    world.add(20, 3)
    world.add(20, 3, caller=Caller(klass="gold"))
    world.scheduler.update(replace(limits, eviction=classes(gold=10)))
    world.drain()
    assert world.first_seen == [0, 2, 1]
    assert world.scheduler.stats.preemptions == 1


@DEPTHS
@pytest.mark.parametrize(("edit", "gone"), [({"gold": 10}, 1), ({"gold": -1}, 0), ({}, 2), ({"tin": 3}, 2)])
def test_who_gives_way_is_by_the_priorities_of_now(depth: int, edit: dict[str, int], gone: int) -> None:
    """Of a class that the policy no longer names: as of none."""
    limits = make_limits(max_batch=3, eviction=classes(gold=5, high=20))
    world = World(limits, blocks=64, depth=depth)
    for klass in ("gold", "", "gold" if edit.get("gold") == 10 else ""):
        world.add(20, 100, caller=Caller(klass=klass))
    for _ in range(5):
        world.step()
    world.scheduler.update(replace(limits, eviction=classes(high=20, **edit)))
    world.add(20, 5, caller=Caller(klass="high"))
    world.step()
    assert running(world) == {0, 1, 2, 3} - {gone}
    world.drain()


def test_a_class_that_is_raised_takes_its_share_along() -> None:
    """What its key asked for counts in the class where it is served, and no longer in the other."""
    limits = make_limits(max_batch=1, eviction=classes(gold=0, high=10))
    world = World(limits, blocks=64)
    world.add(60, 30, caller=Caller(key="a", klass="gold"))
    world.scheduler.update(replace(limits, eviction=classes(gold=10, high=10)))
    for caller in (Caller(key="a", klass="high"), Caller(key="b", klass="high"), Caller(key="a"), Caller(key="b")):
        world.add(60, 30, caller=caller)
    assert [s.request.id for s in world.scheduler._queue] == [0, 2, 1, 3, 4]
    world.drain()


# --- shares within a class ------------------------------------------------------------------------------


def served(world: World, keys: list[Caller], steps: int) -> Counter[str]:
    """Tokens by key while everybody has more waiting than can run."""
    for _ in range(40):
        for caller in keys:
            world.add(30, 10, caller=caller)
    for _ in range(steps):
        world.step()
    tokens: Counter[str] = Counter()
    for outcome in world.outcomes.values():
        tokens[outcome.request.caller.key] += len(outcome.tokens) + 30 * bool(outcome.tokens)
    return tokens


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_keys_share_by_weight(weight: float) -> None:
    world = World(make_limits(max_batch=4), blocks=64)
    tokens = served(world, [Caller(key="a", weight=weight), Caller(key="b")], 120)
    assert tokens["a"] / tokens["b"] == pytest.approx(weight, rel=0.25)


@pytest.mark.parametrize("marks", [None, Watermarks(0.2, 0.9)])
def test_keys_share_above_the_soft_mark_whatever_the_size_of_their_requests(marks: Watermarks | None) -> None:
    """One key sends small requests, the other middling ones: smaller ones come first, and take no more for it."""
    limits = make_limits(max_batch=64, long=None, watermarks=marks, min_free_ratio=0.0, step_tokens=2048)
    world = World(limits, blocks=101)
    for _ in range(6):
        world.add(160, 50)
    world.drain()
    sizes = {"small": (32, 20), "middling": (128, 30)}
    for _ in range(150):
        queued = Counter(s.request.caller.key for s in world.scheduler._queue)
        for key, (prompt, most) in sizes.items():
            for _ in range(20 - queued[key]):
                world.add(prompt, most, caller=Caller(key=key))
        world.step()
    tokens = Counter[str]()
    for outcome in world.outcomes.values():
        tokens[outcome.request.caller.key] += len(outcome.tokens) and len(outcome.request.prompt) + len(outcome.tokens)
    assert tokens["small"] / tokens["middling"] == pytest.approx(1.0, rel=0.25)


def test_a_key_that_floods_waits_behind_itself() -> None:
    world = World(make_limits(max_batch=2, max_queue=1000), blocks=64)
    for _ in range(200):
        world.add(30, 10, caller=Caller(key="flood"))
    for _ in range(30):
        world.step()
    world.add(30, 10, caller=Caller(key="quiet"))
    for _ in range(30):
        world.step()
    assert world.outcomes[200].end


def test_requests_of_one_key_stay_in_their_order() -> None:
    world = World(make_limits(max_batch=2), blocks=64)
    for number in range(20):
        world.add(5 + number * 3 % 7, 3 + number * 5 % 11, caller=Caller(key="a"))
        world.step()
    world.drain()
    assert world.first_seen == sorted(world.first_seen)


events = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.booleans()), max_size=60)


@given(events)
def test_tags_of_a_key_never_go_back_and_never_lie_before_what_was_served(plan: list[tuple[str, int, bool]]) -> None:
    shares = FairShares()
    last: dict[str, float] = {}
    waiting: list[tuple[float, Caller, int]] = []
    clock = 0.0
    for key, tokens, serve in plan:
        caller = Caller(key=key, weight=2.0)
        tag = shares.tag(0, caller, tokens)
        assert tag >= max(last.get(key, 0.0), clock)
        last[key] = tag
        waiting.append((tag, caller, tokens))
        if serve:
            waiting.sort(key=lambda entry: entry[0])
            first, whose, asked = waiting.pop(0)
            shares.serve(0, first)
            shares.correct(0, whose, -asked / 2)
            clock = max(clock, first)


def test_who_leaves_unserved_gives_its_share_back() -> None:
    shares, caller = FairShares(), Caller(key="a")
    shares.tag(0, caller, 1000)
    shares.correct(0, caller, -1000)
    assert shares.tag(0, caller, 10) == 0.0


def test_keys_that_are_idle_are_forgotten() -> None:
    shares = FairShares()
    for number in range(5000):
        caller = Caller(key=str(number))
        shares.serve(0, shares.tag(0, caller, 10))
        shares.correct(0, caller, -10)
    assert len(shares._shares) <= 1025
