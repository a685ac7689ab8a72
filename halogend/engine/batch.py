"""A step's plan as tensors: what every layer of a model needs to know about the rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from halogen_kernels import Span
from torch import Tensor

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.step import StepItem, StepPlan


@dataclass(frozen=True, slots=True)
class Batch:
    """n rows, one a position, in the plan's order.

    `tokens`, `positions` and `slots` (block * BLOCK_TOKENS + offset) are int64 [n]; `spans` has one
    entry an item; `sampled` holds the rows whose logits are wanted, int64 [s]; `fresh_blocks` are
    those whose first position this step writes.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    spans: tuple[Span, ...]
    sampled: Tensor
    fresh_blocks: list[int]


def make_batch(plan: StepPlan, slot_tokens: Tensor) -> Batch:
    """`slot_tokens` is int64 [slots]: what was sampled last into each slot."""
    tokens: list[int] = []
    positions: list[int] = []
    spans: list[Span] = []
    sampled: list[int] = []
    fresh: list[int] = []
    late_rows: list[int] = []
    late_slots: list[int] = []
    for item in plan.items:
        spans.append(Span(len(tokens), item.count, item.start, item.blocks))
        tokens.extend(item.tokens)
        if item.from_slot:
            late_rows.append(len(tokens))
            late_slots.append(item.slot)
            tokens.append(0)
        positions.extend(range(item.start, item.start + item.count))
        fresh.extend(_fresh_blocks(item))
        if item.samples:
            sampled.append(len(tokens) - 1)
    ids = torch.tensor(tokens)
    if late_rows:
        ids[late_rows] = slot_tokens[late_slots]
    return Batch(
        ids, torch.tensor(positions), _slots(spans), tuple(spans), torch.tensor(sampled, dtype=torch.int64), fresh
    )


def _fresh_blocks(item: StepItem) -> list[int]:
    first = -(-item.start // BLOCK_TOKENS)
    last = (item.start + item.count - 1) // BLOCK_TOKENS
    return list(item.blocks[first : last + 1])


def _slots(spans: list[Span]) -> Tensor:
    slots: list[int] = []
    for span in spans:
        if span.count == 1:
            slots.append(span.blocks[span.start // BLOCK_TOKENS] * BLOCK_TOKENS + span.start % BLOCK_TOKENS)
            continue
        for position in range(span.start, span.end):
            slots.append(span.blocks[position // BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS)  # noqa: PERF401 (reads better)
    return torch.tensor(slots)
