"""A step's plan as rows, and the rows as tensors: what every layer of a model needs to know about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from halogen_kernels import Span
from torch import Tensor

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.step import StepItem, StepPlan


@dataclass(frozen=True, slots=True)
class Rows:
    """n rows, one a position, in the plan's order. Row `late_rows`[i] holds what was sampled last into slot
    `late_slots`[i], and 0 here. For each table of the layout, `slots` has where the rows lie and `spans` one entry
    an item. `sampled` are rows whose logits are wanted; `fresh_blocks` those whose first position this step
    writes."""

    tokens: list[int]
    positions: list[int]
    late_rows: list[int]
    late_slots: list[int]
    sampled: list[int]
    slots: list[list[int]]
    spans: list[tuple[Span, ...]]
    fresh_blocks: list[int]


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


def make_rows(plan: StepPlan) -> Rows:
    tokens: list[int] = []
    positions: list[int] = []
    first_rows: list[int] = []
    sampled: list[int] = []
    late_rows: list[int] = []
    late_slots: list[int] = []
    for item in plan.items:
        first_rows.append(len(tokens))
        tokens.extend(item.tokens)
        if item.from_slot:
            late_rows.append(len(tokens))
            late_slots.append(item.slot)
            tokens.append(0)
        positions.extend(range(item.start, item.start + item.count))
        if item.samples:
            sampled.append(len(tokens) - 1)
    tables = range(len(plan.items[0].blocks))
    return Rows(
        tokens=tokens,
        positions=positions,
        late_rows=late_rows,
        late_slots=late_slots,
        sampled=sampled,
        slots=[[slot for item in plan.items for slot in _slots(item, table)] for table in tables],
        spans=[_spans(plan.items, first_rows, table) for table in tables],
        fresh_blocks=[block for item in plan.items for block in _fresh_blocks(item)],
    )


def make_batch(plan: StepPlan, slot_tokens: Tensor) -> Batch:
    """On the host. `slot_tokens` is int64 [slots]: what was sampled last into each slot."""
    rows = make_rows(plan)
    ids = torch.tensor(rows.tokens)
    if rows.late_rows:
        ids[rows.late_rows] = slot_tokens[rows.late_slots]
    # One tensor for all tables: making one costs more than a few numbers in it.
    slots = torch.tensor(rows.slots)
    return Batch(
        ids,
        torch.tensor(rows.positions),
        tuple(TableRows(slots[table], spans) for table, spans in enumerate(rows.spans)),
        torch.tensor(rows.sampled, dtype=torch.int64),
        rows.fresh_blocks,
    )


def _fresh_blocks(item: StepItem) -> list[int]:
    first = -(-item.start // BLOCK_TOKENS)
    last = (item.start + item.count - 1) // BLOCK_TOKENS
    return [] if first > last else [block for table in item.blocks for block in table[first : last + 1]]


def _spans(items: Sequence[StepItem], first_rows: Sequence[int], table: int) -> tuple[Span, ...]:
    return tuple(
        Span(row, item.count, item.start, item.blocks[table]) for row, item in zip(first_rows, items, strict=True)
    )


def _slots(item: StepItem, table: int) -> list[int]:
    blocks, end = item.blocks[table], item.start + item.count
    if item.count == 1:
        return [blocks[item.start // BLOCK_TOKENS] * BLOCK_TOKENS + item.start % BLOCK_TOKENS]
    return [blocks[place // BLOCK_TOKENS] * BLOCK_TOKENS + place % BLOCK_TOKENS for place in range(item.start, end)]
