"""A step carried out once, and in parts when it fails."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from support.sampling_reference import make_sampling

from halogend.engine.execute import Executor
from halogend.sched.step import StepItem, StepPlan

VOCAB = 5


@dataclass
class CopyingRunner:
    """Copies, then fails whenever more than one item is asked of it."""

    vocab: int = VOCAB
    copied: list[tuple[int, int]] = field(default_factory=list)

    def forward(self, plan: StepPlan, slot_tokens: torch.Tensor) -> torch.Tensor:
        self.copied += plan.copies
        if len(plan.items) > 1:
            raise RuntimeError("not together")
        return torch.eye(VOCAB)[[plan.items[0].id]]


def test_a_step_that_is_repeated_in_parts_copies_once() -> None:
    """What was copied may have had its old place written by the first try."""
    runner = CopyingRunner()
    executor = Executor(runner, 4)  # type: ignore[arg-type]  # as much of a runner as is called
    items = tuple(StepItem(id_, id_, 0, (1,), from_slot=False, blocks=[[1]], samples=True) for id_ in (2, 3))
    for item in items:
        executor.begin(item.id, make_sampling(temperature=0), (1,))
    result = executor.run(StepPlan(0, items, copies=((7, 8),)))
    assert result.sampled == ((2, 2), (3, 3))
    assert runner.copied == [(7, 8)]
