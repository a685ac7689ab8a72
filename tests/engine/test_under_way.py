"""What steps take that follow each other, or overlap."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.engine_driver import load_engine
from support.served import Served
from support.tiny_models import tiny_gemma3

from halogend.engine.under_way import UnderWay
from halogend.sched.step import StepItem, StepPlan, StepResult

PLANNING_S, LAUNCHING_S, COMPUTING_S = 1.0, 0.25, 8.0


@dataclass
class Device:
    """In an executor's place: a device that computes one step after the other, and the time that passes meanwhile."""

    now: float = 100.0
    free_at: float = 0.0
    due: deque[tuple[StepPlan, float]] = field(default_factory=deque)
    failing: bool = False

    def clock(self) -> float:
        return self.now

    def submit(self, plan: StepPlan) -> None:
        self.now += LAUNCHING_S
        self.free_at = max(self.free_at, self.now) + COMPUTING_S
        self.due.append((plan, self.free_at))

    def collect(self) -> StepResult:
        plan, ready = self.due.popleft()
        self.now = max(self.now, ready)
        return StepResult(plan.number, (), ((1, "engine_error"),) if self.failing else ())


def plan(number: int) -> StepPlan:
    return StepPlan(number, (StepItem(1, 0, number, (1,), from_slot=False, blocks=[[1]], samples=False),))


def run(device: Device, ahead: int, steps: int) -> list[tuple[int, float, float]]:
    """(number, seconds of computing, seconds in all) of each."""
    under_way = UnderWay(device, ahead, device.clock)  # type: ignore[arg-type]  # as much of an executor as is used
    done = []
    for number in range(steps):
        planned_s = device.now
        device.now += PLANNING_S
        under_way.submit(plan(number), planned_s)
        if under_way.is_full:
            done.append(under_way.collect())
    while under_way:
        done.append(under_way.collect())
    return [(each.plan.number, each.result.seconds, each.seconds) for each in done]


def test_one_after_the_other() -> None:
    device = Device()
    took = LAUNCHING_S + COMPUTING_S
    assert run(device, 0, 3) == [(number, took, PLANNING_S + took) for number in range(3)]
    assert device.now == 100.0 + 3 * (PLANNING_S + took)


def test_planning_takes_no_time_where_a_step_is_ahead() -> None:
    """From the second on a step takes what the device takes."""
    device = Device()
    first, *others = run(device, 1, 4)
    assert first[0] == 0
    assert others == [(number, COMPUTING_S, COMPUTING_S) for number in (1, 2, 3)]
    assert device.now == 100.0 + PLANNING_S + LAUNCHING_S + 4 * COMPUTING_S


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_step_that_was_repeated_in_parts_says_nothing_of_what_one_takes(ahead: int) -> None:
    device = Device(failing=True)
    assert all(computing == 0 and whole > 0 for _, computing, whole in run(device, ahead, 3))


def test_a_model_gives_the_same_tokens_in_a_pool_for_one_request(tmp_path: Path) -> None:
    """Windows too, whose blocks are given back while the step that read them may still run."""
    engine = load_engine(tiny_gemma3(tmp_path / "model.gguf", seed=4, window=16).path)
    prompts = [[(7 * number + i) % 200 + 5 for i in range(1 + 17 * number)] for number in range(5)]
    longest = engine.layout.blocks_for_request(len(prompts[-1]) + 20 - 1, 24)
    outcomes = []
    for ahead, blocks in ((0, None), (1, 1 + longest)):
        served = Served(replace(engine, steps_ahead=ahead), blocks=blocks, prefill_chunk_tokens=24)
        for number, prompt in enumerate(prompts):
            served.add(number, prompt, 20)
        served.run()
        outcomes.append(served.tokens)
    assert outcomes[0] == outcomes[1]
