"""A loop whose device is too hot: it rests between steps, and hears what comes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.engine_client import make_generate
from support.turned_loop import STEP_S, TurnedLoop

from halogend.wire.control import SetRest
from halogend.wire.requests import Abort


@pytest.fixture(params=[0, 1], ids=["depth 0", "depth 1"])
def rig(request: pytest.FixtureRequest) -> Iterator[TurnedLoop]:
    made = TurnedLoop(request.param)
    yield made
    made.close()


def test_between_steps_it_rests_as_long_as_it_was_told_and_hears_what_comes(rig: TurnedLoop) -> None:
    rig.client.control.send(SetRest(share=0.5))
    rig.client.data.send(make_generate(1, (1, 2), 20))
    rig.client.data.send(make_generate(2, (3,), 20))
    rig.loop.turn()
    assert (rig.steps, rig.now) == (1, STEP_S)
    rig.client.data.send(Abort(id=2))
    rig.loop.turn()
    assert rig.steps == 1
    rig.now += STEP_S
    rig.loop.turn()
    assert rig.steps == 2
    assert [len(plan.items) for plan in rig.runner.plans] == [2, 1], "the one that went away was heard in between"


def test_the_end_of_the_heat_is_heard_at_once(rig: TurnedLoop) -> None:
    rig.client.control.send(SetRest(share=0.9))
    rig.client.data.send(make_generate(1, (1, 2), 20))
    rig.loop.turn()
    rig.client.control.send(SetRest(share=0.0))
    rig.loop.turn()
    rig.loop.turn()
    assert rig.steps == 3


def test_what_has_begun_when_the_heat_comes_is_collected_before_anything_else_is(rig: TurnedLoop) -> None:
    """Else the rest would be counted as the time of a step, and grow by itself."""
    rig.client.data.send(make_generate(1, (1, 2), 20))
    rig.loop.turn()
    rig.client.control.send(SetRest(share=0.5))
    rig.loop.turn()
    done = rig.steps
    rig.now += 0.001
    rig.client.control.send(SetRest(share=0.5))  # else the loop would sleep, and nothing here moves its clock
    rig.loop.turn()
    assert rig.steps == done, "it rests"
    assert not rig.loop._under_way
    for _ in range(3):
        rig.now += STEP_S + 1e-6
        rig.loop.turn()
    assert rig.steps == done + 3
    assert rig.loop._cooling.left_s(rig.now) == pytest.approx(STEP_S), "and no longer than after the first"
