"""A step's plan as tensors."""

from __future__ import annotations

import torch
from halogen_kernels import Span

from halogend.engine.batch import make_batch
from halogend.sched.step import StepItem, StepPlan


def item(start: int, tokens: tuple[int, ...], blocks: list[int], **changes: object) -> StepItem:
    values: dict[str, object] = {"id": 1, "slot": 0, "from_slot": False, "samples": True}
    return StepItem(start=start, tokens=tokens, blocks=[blocks], **(values | changes))  # type: ignore[arg-type]  # test values


def test_rows_in_the_plans_order() -> None:
    plan = StepPlan(
        1,
        (
            item(33, (), [4, 9, 2], slot=3, from_slot=True),
            item(14, (50, 51, 52), [7, 5], samples=False),
            item(0, (60, 61), [8], slot=1, from_slot=True),
        ),
    )
    batch = make_batch(plan, torch.tensor([100, 101, 102, 103]))
    assert batch.tokens.tolist() == [103, 50, 51, 52, 60, 61, 101]
    assert batch.positions.tolist() == [33, 14, 15, 16, 0, 1, 2]
    (table,) = batch.tables
    assert table.slots.tolist() == [2 * 16 + 1, 7 * 16 + 14, 7 * 16 + 15, 5 * 16, 8 * 16, 8 * 16 + 1, 8 * 16 + 2]
    assert table.spans == (Span(0, 1, 33, [4, 9, 2]), Span(1, 3, 14, [7, 5]), Span(4, 3, 0, [8]))
    assert batch.sampled.tolist() == [0, 6]


def test_fresh_blocks_are_those_whose_first_position_is_written() -> None:
    def fresh(start: int, count: int) -> list[int]:
        plan = StepPlan(0, (item(start, (1,) * count, [11, 12, 13, 14]),))
        return make_batch(plan, torch.zeros(1, dtype=torch.int64)).fresh_blocks

    assert fresh(0, 1) == [11]
    assert fresh(1, 15) == []
    assert fresh(15, 1) == []
    assert fresh(15, 2) == [12]
    assert fresh(16, 16) == [12]
    assert fresh(3, 40) == [12, 13]


def test_no_row_need_be_sampled() -> None:
    batch = make_batch(StepPlan(0, (item(0, (1, 2), [1], samples=False),)), torch.zeros(1, dtype=torch.int64))
    assert batch.sampled.dtype == torch.int64
    assert len(batch.sampled) == 0


def test_each_table_has_slots_and_spans_of_its_own() -> None:
    """What lies behind a window (0) is in no slot and never fresh."""
    values = {"id": 1, "slot": 0, "from_slot": False, "samples": True}
    plan = StepPlan(
        0,
        (
            StepItem(start=30, tokens=(5, 6, 7), blocks=[[4, 9, 2], [0, 8, 3]], **values),
            StepItem(start=48, tokens=(8,), blocks=[[1, 10, 11, 12], [0, 0, 13, 14]], **values),
        ),
    )
    batch = make_batch(plan, torch.zeros(1, dtype=torch.int64))
    everything, sliding = batch.tables
    assert everything.slots.tolist() == [9 * 16 + 14, 9 * 16 + 15, 2 * 16, 12 * 16]
    assert sliding.slots.tolist() == [8 * 16 + 14, 8 * 16 + 15, 3 * 16, 14 * 16]
    assert everything.spans == (Span(0, 3, 30, [4, 9, 2]), Span(3, 1, 48, [1, 10, 11, 12]))
    assert sliding.spans == (Span(0, 3, 30, [0, 8, 3]), Span(3, 1, 48, [0, 0, 13, 14]))
    assert batch.fresh_blocks == [2, 3, 12, 14]
