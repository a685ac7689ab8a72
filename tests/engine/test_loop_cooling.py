"""A loop whose device is too hot: it rests between steps, and hears what comes meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from support.counting_runner import CountingRunner, make_loaded
from support.engine_client import EngineClient, make_engine_limits, make_generate
from support.engine_driver import engine_spec

from halogend.engine.loop import Channels, EngineLoop
from halogend.engine.progress import Progress
from halogend.sched.step import StepPlan
from halogend.wire.channel import WorkerChannel
from halogend.wire.messages import Abort, SetRest

STEP_S = 0.1
BLOCKS = 64


class Rig:
    """A loop that is turned by hand, with a clock that only its steps and the test move."""

    def __init__(self, ahead: int) -> None:
        self.now = 0.0
        rig = self

        class Slow(CountingRunner):
            def forward(self, plan: StepPlan, slot_tokens: torch.Tensor) -> torch.Tensor:
                rig.now += STEP_S
                return super().forward(plan, slot_tokens)

        self.runner = Slow(BLOCKS)
        pairs = [socket.socketpair() for _ in range(2)]
        ends = [(WorkerChannel(ours), WorkerChannel(theirs)) for ours, theirs in pairs]
        self.channels: Mapping[str, WorkerChannel] = {"control": ends[0][1], "data": ends[1][1]}
        self.client = EngineClient(ends[0][0], ends[1][0])
        loaded = make_loaded(self.runner, block_count=BLOCKS, reserve_blocks=BLOCKS, steps_ahead=ahead)
        spec = engine_spec(Path("unused"), limits=make_engine_limits(), max_model_len=128)
        self.loop = EngineLoop(Channels(**self.channels), loaded, spec, Progress(), lambda: self.now)

    @property
    def steps(self) -> int:
        return len(self.runner.plans)

    def close(self) -> None:
        for channel in (*self.channels.values(), self.client.control, self.client.data):
            channel.close()


@pytest.fixture(params=[0, 1], ids=["depth 0", "depth 1"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(request.param)
    yield made
    made.close()


def test_between_steps_it_rests_as_long_as_it_was_told_and_hears_what_comes(rig: Rig) -> None:
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


def test_the_end_of_the_heat_is_heard_at_once(rig: Rig) -> None:
    rig.client.control.send(SetRest(share=0.9))
    rig.client.data.send(make_generate(1, (1, 2), 20))
    rig.loop.turn()
    rig.client.control.send(SetRest(share=0.0))
    rig.loop.turn()
    rig.loop.turn()
    assert rig.steps == 3


def test_what_has_begun_when_the_heat_comes_is_collected_before_anything_else_is(rig: Rig) -> None:
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
