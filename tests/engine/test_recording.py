"""Steps of a larger batch are recorded while the engine serves: one size at a time, in a tenth of the time at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from support.engine_client import make_engine_limits, make_generate
from support.turned_loop import STEP_S, TurnedLoop

from halogend.engine.recording import Recording
from halogend.wire.control import Commit, PrepareEngine

TAKES_S = 0.5


class Sizes:
    """Recordings of powers of two. `during` is called within each."""

    def __init__(self, during: Callable[[], None] = lambda: None) -> None:
        self.most, self.recorded = 1, [1]
        self.during = during

    def expect(self, rows: int) -> None:
        self.most = 1 << (rows - 1).bit_length()

    def record(self) -> bool:
        self.during()
        if self.recorded[-1] < self.most:
            self.recorded.append(self.recorded[-1] * 2)
        return self.recorded[-1] < self.most


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def go(self) -> None:
        self.now += TAKES_S


def test_without_recordings_and_without_a_change_nothing_is_due() -> None:
    clock = Clock()
    nothing, recording = Recording(None, clock), Recording(Sizes(), clock)
    nothing.expect(64)
    assert not nothing.is_due(1e9, is_busy=False)
    assert not recording.is_due(1e9, is_busy=False)


def test_while_somebody_waits_a_tenth_of_the_time_is_for_recording() -> None:
    clock = Clock()
    sizes = Sizes(clock.go)
    recording = Recording(sizes, clock)
    recording.expect(5)
    assert recording.is_due(clock.now, is_busy=True)
    recording.record()
    assert (sizes.recorded, clock.now) == ([1, 2], TAKES_S)
    assert not recording.is_due(TAKES_S + 9 * TAKES_S - 1e-6, is_busy=True)
    assert recording.is_due(TAKES_S + 9 * TAKES_S + 1e-6, is_busy=True)
    assert recording.is_due(clock.now, is_busy=False), "nobody waits"
    recording.record()
    recording.record()
    assert sizes.recorded == [1, 2, 4, 8]
    assert not recording.is_due(1e9, is_busy=False), "all is there"


@pytest.fixture(params=[0, 1], ids=["depth 0", "depth 1"])
def turned(request: pytest.FixtureRequest) -> Iterator[TurnedLoop]:
    made = TurnedLoop(request.param, recordings=Sizes())
    yield made
    made.close()


def take_eight(turned: TurnedLoop) -> Sizes:
    """At once, from the next turn on."""
    turned.client.control.send(PrepareEngine(update=1, limits=make_engine_limits(max_batch=8)))
    turned.client.control.send(Commit(update=1))
    sizes = turned.loop._loaded.recordings  # the test reaches inside
    assert isinstance(sizes, Sizes)
    return sizes


def test_streams_go_on_between_two_recordings(turned: TurnedLoop) -> None:
    turned.client.data.send(make_generate(1, (1, 2), 120))
    turned.client.data.send(make_generate(2, (3,), 120))
    turned.loop.turn()
    sizes, steps = take_eight(turned), list[int]()

    def during() -> None:
        assert not turned.loop._under_way, "the time of a step would have it in"
        steps.append(turned.steps)
        turned.now += TAKES_S

    sizes.during = during
    while len(steps) < 3:
        turned.loop.turn()
    assert min(later - before for before, later in pairwise(steps)) >= 9 * TAKES_S / STEP_S - 1
    assert sizes.recorded == [1, 2, 4, 8]
    assert max(len(plan.items) for plan in turned.runner.plans) == 2


def test_while_nobody_asks_all_is_recorded_at_once(turned: TurnedLoop) -> None:
    sizes = take_eight(turned)
    for _ in range(3):
        turned.loop.turn()
    assert sizes.recorded == [1, 2, 4, 8]
