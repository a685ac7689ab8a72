"""Prompt chunks over a paged cache in Triton, against float64; whatever no row may see is NaN."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels.triton import attention, attention_plan, launching
from halogen_kernels.triton.launching import Variant
from support.paged import Layout, PagedCase, make_case

SPANS = [(0, 5), (70, 3), (0, 131), (37, 40)]
LIMITS = {torch.bfloat16: 0.03, torch.float16: 0.004, torch.float32: 1e-5}


def attend(case: PagedCase, window: int | None) -> tuple[torch.Tensor, list[Variant]]:
    plan = attention_plan.make_plan(case.shape, case.spans, window, case.cache.dtype, case.queries.device)
    with launching.launched() as variants:
        out = attention.attend(case.queries, case.cache, plan)
    return out, variants


def worst(got: torch.Tensor, expected: torch.Tensor) -> float:
    assert got.isfinite().all()
    return float((got.cpu().double() - expected).abs().max())


@pytest.mark.parametrize(
    ("dtype", "dims", "window", "softcap"),
    [
        (torch.bfloat16, (4, 2, 64), None, 0.0),
        (torch.float16, (2, 1, 80), 33, 0.0),
        (torch.bfloat16, (3, 1, 96), 64, 2.0),
        (torch.float16, (6, 2, 128), None, 1.5),
        (torch.bfloat16, (2, 2, 192), 1, 0.0),
        (torch.float16, (4, 1, 256), 100, 0.0),
    ],
)
def test_against_float64(
    device: torch.device,
    dtype: torch.dtype,
    dims: tuple[int, int, int],
    window: int | None,
    softcap: float,
) -> None:
    case = make_case(dims, SPANS, device, dtype, dtype, softcap)
    got, variants = attend(case, window)
    assert [(variant.op, variant.constexprs["RUN"]) for variant in variants] == [("paged_prefill", False)]
    assert got.dtype == dtype
    assert worst(got, case.expected(window)) < LIMITS[dtype]


@pytest.mark.parametrize("window", [None, 2, 16, 17, 64, 65])
def test_every_border_of_a_window(device: torch.device, window: int | None) -> None:
    spans = [(63, 2), (0, 64), (127, 66), (128, 3)]
    case = make_case((2, 1, 64), spans, device, torch.float32, torch.float32)
    case.forget(window)
    assert worst(attend(case, window)[0], case.expected(window)) < LIMITS[torch.float32]


@pytest.mark.parametrize("window", [None, 40])
def test_a_tile_whose_blocks_are_neighbours_is_read_from_one_address(device: torch.device, window: int | None) -> None:
    """With one span elsewhere, its tiles alone are read block by block, and the numbers are what they were."""
    case = make_case((2, 1, 64), SPANS, device, torch.float32, torch.float32, layout="runs")
    case.forget(window)
    got, variants = attend(case, window)
    assert [variant.constexprs["RUN"] for variant in variants] == [True]
    assert worst(got, case.expected(window)) < LIMITS[torch.float32]

    case.swap(*case.spans[2].blocks[:2])
    got, variants = attend(case, window)
    assert sorted(variant.constexprs["RUN"] for variant in variants) == [False, True]
    assert worst(got, case.expected(window)) < LIMITS[torch.float32]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize(("compute", "layout"), [(torch.bfloat16, "scattered"), (torch.float16, "runs")])
def test_codes_with_scales(device: torch.device, compute: torch.dtype, dtype: torch.dtype, layout: Layout) -> None:
    case = make_case((2, 1, 80), SPANS, device, dtype, compute, layout=layout)
    got, _ = attend(case, 50)
    assert got.dtype == compute
    assert worst(got, case.expected(50)) < LIMITS[compute]


def test_long_tiles_come_first(device: torch.device) -> None:
    """So that none is alone at the end."""
    case = make_case((4, 2, 64), SPANS, device)
    plan = attention_plan.make_plan(case.shape, case.spans, None, torch.bfloat16, device)
    assert plan.prefill is not None
    rows = plan.prefill.sizes["BLOCK_M"]
    (tiles,) = plan.prefill.lists
    ends = [case.spans[span].start + first // 2 for span, first in tiles.tiles.tolist()]
    assert ends == sorted(ends, reverse=True)
    assert len(ends) == sum(-(-count * 2 // rows) for _, count in SPANS)


def test_a_run_begins_at_a_multiple_of_its_length() -> None:
    """Then it lies in one chunk."""
    aligned, shifted = [8, 9, 10, 11, 20, 21], [9, 10, 11, 12]
    assert attention_plan.in_runs(aligned, range(6), 4)
    assert not attention_plan.in_runs(shifted, range(4), 4)
    assert not attention_plan.in_runs([8, 9, 11, 10], range(4), 4)
    assert attention_plan.in_runs([0, 0, 10, 11, 20], range(2, 5), 4), "what lies behind a window is not looked at"
    assert not attention_plan.in_runs([0, 0, 10, 12], range(2, 4), 4)
    assert attention_plan.in_runs([3, 9, 1], range(3), 1)
