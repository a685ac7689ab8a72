"""Single positions over long contexts in Triton, against float64: in one part and in several, in runs and not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl
from halogen_kernels import AttentionShape, Span
from halogen_kernels.triton import attention, attention_plan, launching
from halogen_kernels.triton.attention_plan import AttentionPlan, FixedDecode
from halogen_kernels.triton.launching import Variant
from halogen_kernels.triton.tiles import lies_in_runs
from support.paged import CHUNK_BLOCKS, Layout, PagedCase, T, make_case

ENDS = [1, 16, 17, 64, 300, 511]
LIMITS = {torch.bfloat16: 0.03, torch.float16: 0.004, torch.float32: 1e-5}
ALONE = [(end - 1, 1) for end in ENDS]


def attend(case: PagedCase, window: int | None, splits: int) -> tuple[torch.Tensor, list[Variant]]:
    plan = in_parts(
        attention_plan.make_plan(case.shape, case.spans, window, case.cache.dtype, case.queries.device), splits
    )
    with launching.launched() as variants:
        out = attention.attend(case.queries, case.cache, plan)
    return out, variants


def in_parts(plan: AttentionPlan, splits: int) -> AttentionPlan:
    assert plan.decode is not None
    return replace(plan, decode=replace(plan.decode, splits=splits))


def worst(got: torch.Tensor, expected: torch.Tensor) -> float:
    assert got.isfinite().all()
    return float((got.cpu().double() - expected).abs().max())


@pytest.mark.parametrize(
    ("dtype", "dims", "window", "softcap", "splits", "layout"),
    [
        (torch.bfloat16, (4, 2, 64), None, 0.0, 1, "runs"),
        (torch.float16, (4, 2, 64), None, 0.0, 2, "scattered"),
        (torch.bfloat16, (2, 1, 80), 33, 0.0, 2, "scattered"),
        (torch.float16, (3, 1, 96), 300, 2.0, 3, "runs"),
        (torch.bfloat16, (6, 2, 128), None, 1.5, 3, "scattered"),
        (torch.float16, (20, 1, 192), 1, 0.0, 1, "scattered"),
        (torch.bfloat16, (4, 1, 256), 100, 0.0, 1, "runs"),
    ],
)
def test_against_float64(
    device: torch.device,
    dtype: torch.dtype,
    dims: tuple[int, int, int],
    window: int | None,
    softcap: float,
    splits: int,
    layout: Layout,
) -> None:
    case = make_case(dims, ALONE, device, dtype, dtype, softcap, layout)
    case.forget(window)
    got, variants = attend(case, window, splits)
    kernels = ["context_parts", "combine_parts"] if splits > 1 else ["context_parts"]
    assert [(variant.op, variant.kernel) for variant in variants] == [("paged_decode", kernel) for kernel in kernels]
    assert got.dtype == dtype
    assert worst(got, case.expected(window)) < LIMITS[dtype]


@pytest.mark.parametrize("window", [None, 16, 65, 256])
@pytest.mark.parametrize("splits", [1, 3])
def test_every_border_of_a_window_and_of_parts(device: torch.device, window: int | None, splits: int) -> None:
    case = make_case((2, 1, 64), [(end - 1, 1) for end in (256, 257, 513)], device, torch.float32, torch.float32)
    case.forget(window)
    assert worst(attend(case, window, splits)[0], case.expected(window)) < LIMITS[torch.float32]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize(("compute", "layout"), [(torch.bfloat16, "scattered"), (torch.float16, "runs")])
def test_codes_with_scales(device: torch.device, compute: torch.dtype, dtype: torch.dtype, layout: Layout) -> None:
    case = make_case((2, 1, 80), ALONE, device, dtype, compute, layout=layout)
    got, _ = attend(case, None, 2)
    assert got.dtype == compute
    assert worst(got, case.expected(None)) < LIMITS[compute]


@pytest.mark.parametrize("splits", [1, 2])
def test_numbers_are_put_into_a_plan_that_stays_where_it_is(device: torch.device, splits: int) -> None:
    """As a captured graph reads them; rows that are padding are zeros."""
    case = make_case((2, 1, 64), ALONE, device)
    fixed = FixedDecode(case.shape, None, torch.bfloat16, (5, 33), device)
    plan = in_parts(fixed.plan, splits)
    assert plan.decode is not None
    before = [tensor.data_ptr() for tensor in (plan.decode.rows, plan.decode.tables)]
    for chosen in ([0, 4], [5, 1, 2, 3]):
        spans = [replace(case.spans[number], row=row) for row, number in enumerate(chosen)]
        queries = torch.full((5, 2, 64), 1.0, dtype=torch.bfloat16, device=device)
        queries[: len(chosen)] = case.queries[chosen]
        fixed.fill(spans)
        got = attention.attend(queries, case.cache, plan)
        assert worst(got[: len(chosen)], case.expected(None)[chosen]) < LIMITS[torch.bfloat16]
        assert got[len(chosen) :].eq(0).all()
    assert [tensor.data_ptr() for tensor in (plan.decode.rows, plan.decode.tables)] == before


def test_a_plan_has_no_room_for_more_than_it_was_made_for(device: torch.device) -> None:
    case = make_case((4, 2, 64), ALONE, device)
    with pytest.raises(ValueError, match=r"6 sequences of up to 32 blocks"):
        FixedDecode(case.shape, None, torch.bfloat16, (4, 64), device).fill(case.spans)
    with pytest.raises(ValueError, match=r"1 sequences of up to 32 blocks"):
        FixedDecode(case.shape, None, torch.bfloat16, (4, 28), device).fill(case.spans[-1:])


@pytest.mark.parametrize(
    ("processors", "rows", "longest", "splits"),
    [(132, 1, 10000, 39), (132, 1, 700, 2), (132, 32, 10000, 3), (132, 66, 10000, 1), (132, 1, 90, 1)],
)
def test_contexts_are_split_until_there_is_enough_to_do(
    monkeypatch: pytest.MonkeyPatch, processors: int, rows: int, longest: int, splits: int
) -> None:
    """With 8 key/value heads, four programs for each processor are wanted, of 256 positions or more."""
    monkeypatch.setattr(attention_plan, "_processors", lambda device: processors)
    shape = AttentionShape(32, 8, 128, 1.0, T)
    spans = [Span(row, 1, longest - 1, [0] * -(-longest // T)) for row in range(rows)]
    plan = attention_plan.make_plan(shape, spans, None, torch.bfloat16, torch.device("cpu"))
    assert plan.decode is not None
    assert plan.decode.splits == splits


@triton.jit(do_not_specialize=["first", "last", "shift"])
def tell_runs(blocks, out, first, last, shift, T: tl.constexpr, BLOCK_N: tl.constexpr):
    tl.store(out, tl.where(lies_in_runs(blocks, first, last, shift, T, BLOCK_N, 16), 1, 0))


@pytest.mark.parametrize(
    ("blocks", "places"),
    [
        ([8, 9, 10, 11, 20, 21], range(6)),
        ([9, 10, 11, 12], range(4)),
        ([8, 9, 11, 10], range(4)),
        ([0, 0, 10, 11, 20], range(2, 5)),
        ([0, 0, 10, 12], range(2, 4)),
        ([8, 9, 10, 11] * 6 + [4, 5, 6, 8], range(28)),
        ([8, 9, 10, 11] * 6 + [4, 5, 6, 8], range(27)),
        ([8, 9, 10, 11] * 6 + [4, 5, 6, 8], range(3, 20)),
        ([7], range(0)),
    ],
)
def test_a_program_sees_runs_as_the_host_does(device: torch.device, blocks: Sequence[int], places: range) -> None:
    table = torch.tensor(blocks, dtype=torch.int32, device=device)
    out = torch.full((1,), 7, dtype=torch.int32, device=device)
    tell_runs[(1,)](table, out, places.start, places.stop, CHUNK_BLOCKS.bit_length() - 1, T, 4 * T)
    assert bool(out.item()) == attention_plan.in_runs(blocks, places, 4)
    tell_runs[(1,)](table, out, places.start, places.stop, 1, T, 4 * T)
    assert out.item() == 0, "no run is in a chunk that is shorter"
