"""Logits of the real runner for one prompt, beside those of transformers in float64."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Protocol

import torch
from support.engine_driver import load_engine, spread

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.step import StepItem, StepPlan

COUNT = 41  # tokens of the prompt
COMPARED = 12


class OnDisk(Protocol):
    @property
    def path(self) -> Path: ...

    @property
    def vocab_size(self) -> int: ...

    def reference(self) -> Any: ...


def engine_logits(path: Path, tokens: list[int], **changes: Any) -> torch.Tensor:
    """Logits [12, vocabulary] of the last 12 positions: all but the last 11 in chunks of 10 at most, then one
    by one."""
    engine = load_engine(path, **changes)
    runner = engine.runner
    slots = torch.zeros(1, dtype=torch.int64)
    further = -(-len(tokens) // BLOCK_TOKENS) - 4
    blocks = spread(engine, [9, 3, 5, 2, *range(10, 10 + further)])
    rows = []
    cuts = [*range(0, len(tokens) - COMPARED + 1, 10), *range(len(tokens) - COMPARED + 1, len(tokens) + 1)]
    for number, (start, end) in enumerate(itertools.pairwise(cuts)):
        item = StepItem(7, 0, start, tuple(tokens[start:end]), from_slot=False, blocks=blocks, samples=True)
        rows.append(runner.forward(StepPlan(number, (item,)), slots))
    return torch.cat(rows)[-COMPARED:]


@torch.no_grad()
def oracle_logits(oracle: OnDisk, tokens: list[int]) -> torch.Tensor:
    """float64 [12, vocabulary]"""
    logits: torch.Tensor = oracle.reference().double()(torch.tensor([tokens])).logits[0]
    return logits[-COMPARED:]


def largest_error(model: OnDisk, **changes: Any) -> float:
    """Relative to the largest logit. `changes` are fields of the engine's spec."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, model.vocab_size, (COUNT,), generator=generator).tolist()
    expected = oracle_logits(model, tokens)
    got = engine_logits(model.path, tokens, **changes)
    assert got.dtype == torch.float32
    return float((got - expected).abs().max() / expected.abs().max())
