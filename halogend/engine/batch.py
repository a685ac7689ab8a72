"""A step's plan as tensors: what every layer of a model needs to know about the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from halogen_kernels import Span
from torch import Tensor

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.step import StepItem, StepPlan


@dataclass(frozen=True, slots=True)
class TableRows:
    """Where the rows lie in one table. `slots` (block * BLOCK_TOKENS + offset) is int64 [n]; `spans` has
    one entry an item."""

    slots: Tensor
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """n rows, one a position, in the plan's order.

    `tokens` and `positions` are int64 [n]; `tables` has an entry for each table of the layout;
    `sampled` holds the rows whose logits are wanted, int64 [s]; `fresh_blocks` are those whose
    first position this step writes.
    """

    tokens: Tensor
    positions: Tensor
    tables: tuple[TableRows, ...]
    sampled: Tensor
    fresh_blocks: list[int]


def make_batch(plan: StepPlan, slot_tokens: Tensor) -> Batch:
    """`slot_tokens` is int64 [slots]: what was sampled last into each slot."""
    tokens: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    sampled: list[int] = []
    late_rows: list[int] = []
    late_slots: list[int] = []
    for item in plan.items:
        rows.append(len(tokens))
        tokens.extend(item.tokens)
        if item.from_slot:
            late_rows.append(len(tokens))
            late_slots.append(item.slot)
            tokens.append(0)
        positions.extend(range(item.start, item.start + item.count))
        if item.samples:
            sampled.append(len(tokens) - 1)
    ids = torch.tensor(tokens)
    if late_rows:
        ids[late_rows] = slot_tokens[late_slots]
    return Batch(
        ids,
        torch.tensor(positions),
        _tables(plan.items, rows),
        torch.tensor(sampled, dtype=torch.int64),
        [block for item in plan.items for block in _fresh_blocks(item)],
    )


def _fresh_blocks(item: StepItem) -> list[int]:
    first = -(-item.start // BLOCK_TOKENS)
    last = (item.start + item.count - 1) // BLOCK_TOKENS
    return [] if first > last else [block for table in item.blocks for block in table[first : last + 1]]


def _tables(items: Sequence[StepItem], rows: Sequence[int]) -> tuple[TableRows, ...]:
    """`rows` are the items' first."""
    tables = range(len(items[0].blocks))
    # One tensor for all of them: making one costs more than a few numbers in it.
    slots = torch.tensor([[slot for item in items for slot in _slots(item, table)] for table in tables])
    return tuple(
        TableRows(
            slots[table],
            tuple(Span(row, item.count, item.start, item.blocks[table]) for row, item in zip(rows, items, strict=True)),
        )
        for table in tables
    )


def _slots(item: StepItem, table: int) -> list[int]:
    blocks, end = item.blocks[table], item.start + item.count
    if item.count == 1:
        return [blocks[item.start // BLOCK_TOKENS] * BLOCK_TOKENS + item.start % BLOCK_TOKENS]
    return [blocks[place // BLOCK_TOKENS] * BLOCK_TOKENS + place % BLOCK_TOKENS for place in range(item.start, end)]
