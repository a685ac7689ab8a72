"""Tokens chosen where the logits are, by Triton's kernel in the interpreter, and what becomes of them."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels.triton.sample import sample
from support.sampling_reference import make_sampling

from halogend.engine.device.choosing import DeviceChooser
from halogend.engine.device.place import Place
from halogend.engine.execute import NUMERIC_ERROR, EngineBrokenError, Executor
from halogend.engine.interface import Want
from halogend.engine.sampler import Sampler, SamplingState
from halogend.sched.step import StepItem, StepPlan
from halogend.wire.requests import Sampling

VOCAB = 97
KINDS: tuple[Sampling, ...] = (
    make_sampling(temperature=0),
    make_sampling(temperature=1.3, seed=5),
    make_sampling(temperature=0.7, top_k=4, seed=6),
    make_sampling(temperature=2.0, top_p=0.6, min_p=0.02, seed=7),
)


def logits_of(rows: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def test_rows_that_are_wanted_are_chosen_as_the_host_does_and_go_into_their_slots() -> None:
    chooser = DeviceChooser(Place(is_interpreted=True), sample)
    logits, slots = logits_of(6, seed=1), torch.full((9,), -7)
    wants = [Want(row, 8 - row, KINDS[row % 4], position=20 + row) for row in (0, 1, 3, 4, 5)]
    tokens = chooser.choose(logits, wants, slots).wait()
    for want, token in zip(wants, tokens, strict=True):
        state = SamplingState(want.sampling, [0] * want.position)
        assert token == Sampler(VOCAB).choose(logits[want.row].numpy(), state)
        assert slots[want.slot] == token
    assert slots.tolist().count(-7) == 4


class Runner:
    """Gives the same logits in every step."""

    vocab = VOCAB

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def forward(self, plan: StepPlan, slot_tokens: torch.Tensor) -> torch.Tensor:
        return self.logits[: len(plan.items)].clone()


def test_a_row_that_is_not_finite_ends_its_request_alone() -> None:
    logits = logits_of(3, seed=2)
    logits[1, 5] = float("nan")
    chooser = DeviceChooser(Place(is_interpreted=True), sample)
    executor = Executor(Runner(logits), 4, chooser)  # type: ignore[arg-type]  # as much of a runner as is called
    items = tuple(StepItem(id_, id_, 0, (1,), from_slot=False, blocks=[[1]], samples=True) for id_ in range(3))
    for item in items:
        executor.begin(item.id, KINDS[0], (1,))
    result = executor.run(StepPlan(0, items))
    assert result.failed == ((1, NUMERIC_ERROR),)
    assert result.sampled == ((0, int(logits[0].argmax())), (2, int(logits[2].argmax())))


def test_requests_with_penalties_are_chosen_for_by_the_host_before_the_next_step_reads_their_tokens() -> None:
    logits = logits_of(2, seed=3)
    chooser = DeviceChooser(Place(is_interpreted=True), sample)
    executor = Executor(Runner(logits), 2, chooser)  # type: ignore[arg-type]  # as above
    executor.begin(0, make_sampling(temperature=0), (1,))
    executor.begin(1, make_sampling(temperature=0, presence_penalty=1000.0), (1,))

    def step(number: int) -> StepPlan:
        items = (StepItem(id_, id_, number, (), from_slot=True, blocks=[[1]], samples=True) for id_ in range(2))
        return StepPlan(number, tuple(items))

    executor.submit(step(0))
    executor.submit(step(1))
    first, second = executor.collect(), executor.collect()
    best = logits[1].topk(2).indices.tolist()
    assert [dict(result.sampled)[1] for result in (first, second)] == best
    assert [dict(result.sampled)[0] for result in (first, second)] == [int(logits[0].argmax())] * 2
    assert executor.in_flight == 0


class Broken:
    """A device that fails after a step was launched."""

    device = torch.device("cpu")

    def choose(self, logits: torch.Tensor, wants: object, slot_tokens: torch.Tensor) -> Broken:
        return self

    def wait(self) -> list[int]:
        raise RuntimeError("an illegal memory access was encountered")


def test_a_device_that_fails_ends_the_engine_not_a_request() -> None:
    executor = Executor(Runner(logits_of(1, seed=4)), 1, Broken())  # type: ignore[arg-type]  # as above
    executor.begin(0, KINDS[0], (1,))
    executor.submit(StepPlan(7, (StepItem(0, 0, 0, (1,), from_slot=False, blocks=[[1]], samples=True),)))
    with pytest.raises(EngineBrokenError, match="the device failed in step 7"):
        executor.collect()


def test_a_device_that_fails_before_its_logits_have_come_ends_the_engine_too() -> None:
    """Those of a request with penalties; of the device "meta" nothing ever comes."""
    executor = Executor(Runner(logits_of(1, seed=4).to("meta")), 1, Broken())  # type: ignore[arg-type]  # as above
    executor.begin(0, make_sampling(presence_penalty=1.0), (1,))
    executor.submit(StepPlan(7, (StepItem(0, 0, 0, (1,), from_slot=False, blocks=[[1]], samples=True),)))
    with pytest.raises(EngineBrokenError, match="the device failed in step 7"):
        executor.collect()
