"""Paged attention of every path against float64, over a cache whose other blocks are poison."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from halogen_kernels import AttentionShape, Kernels, Span, Workspace, reference, select
from halogen_kernels.cpu import attention, groups
from halogen_kernels.cpu import softcap as softcapped
from halogen_kernels.cpu.attention import AttentionPlan
from halogen_kernels.cpu.groups import group_by_length
from hypothesis import given, settings
from hypothesis import strategies as st

T = 4  # positions in a block: small, so that borders are met often
BLOCKS = 400

SHAPES = st.sampled_from([(1, 1, 8), (4, 2, 16), (9, 3, 32), (4, 1, 64), (6, 6, 10)])
SPANS = st.lists(st.tuples(st.integers(0, 70), st.sampled_from([1, 1, 1, 2, 5, 30])), min_size=1, max_size=7)
WINDOWS = st.sampled_from([None, 1, 2, 3, 4, 5, 9, 64])
SOFTCAPS = st.sampled_from([0.0, 0.5, 3.0, 50.0])


@dataclass
class Case:
    shape: AttentionShape
    spans: list[Span]
    queries: torch.Tensor
    cache: torch.Tensor


def make_case(
    dims: tuple[int, int, int], wanted: list[tuple[int, int]], dtype: torch.dtype, seed: int, softcap: float = 0.0
) -> Case:
    """Sequences in scattered blocks; every block that is not theirs is NaN, block 0 is zeros."""
    generator = torch.Generator().manual_seed(seed)
    heads, kv_heads, head_dim = dims
    shape = AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5, T, softcap)
    cache = torch.full((BLOCKS, T * shape.kv_width), float("nan"))
    cache[0] = 0
    free = (torch.randperm(BLOCKS - 1, generator=generator) + 1).tolist()
    spans, row = [], 0
    for start, count in wanted:
        blocks = [free.pop() for _ in range(-(-(start + count) // T))]
        for block in blocks:
            cache[block] = 0
        positions = torch.arange(start + count)
        slots = torch.tensor(blocks)[positions // T] * T + positions % T
        cache.view(-1, shape.kv_width)[slots] = torch.randn(len(slots), shape.kv_width, generator=generator)
        spans.append(Span(row, count, start, [*blocks, free[0]]))  # a block more than needed is allowed
        row += count
    queries = torch.randn(row, heads, head_dim, generator=generator)
    return Case(shape, spans, queries.to(dtype), cache.to(dtype))


def naive(case: Case, window: int | None) -> torch.Tensor:
    """Position by position, in float64."""
    shape, rows = case.shape, []
    for span in case.spans:
        for offset in range(span.count):
            position = span.start + offset
            first = 0 if window is None else max(0, position - window + 1)
            seen = [span.blocks[p // T] * T + p % T for p in range(first, position + 1)]
            kv = case.cache.double().view(-1, 2, shape.kv_heads, shape.head_dim)[seen]
            for head in range(shape.heads):
                keys, values = kv[:, :, head // shape.group].unbind(1)
                scores = keys @ case.queries[span.row + offset, head].double() * shape.scale
                if shape.softcap:
                    scores = shape.softcap * torch.tanh(scores / shape.softcap)
                rows.append(scores.softmax(0) @ values)
    return torch.stack(rows).view(len(case.queries), -1)


def attend(case: Case, window: int | None, backend: str, *, flash: bool = True) -> torch.Tensor:
    kernels = select(backend, case.cache.dtype, flash_attention=flash)
    plan = kernels.plan_attention(case.shape, case.spans, window, case.cache.dtype, Workspace())
    return kernels.attend(case.queries, case.cache, plan)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("path", ["cpu", "cpu-explicit", "reference"])
@given(dims=SHAPES, wanted=SPANS, limits=st.tuples(WINDOWS, SOFTCAPS), seed=st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None)
def test_against_float64(
    dtype: torch.dtype,
    path: str,
    dims: tuple[int, int, int],
    wanted: list[tuple[int, int]],
    limits: tuple[int | None, float],
    seed: int,
) -> None:
    window, softcap = limits
    case = make_case(dims, wanted, dtype, seed, softcap)
    got = attend(case, window, path.removesuffix("-explicit"), flash=path != "cpu-explicit")
    assert got.dtype == dtype
    assert got.isfinite().all()
    error = (got.double() - naive(case, window)).abs().max()
    assert error < (0.03 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("softcap", [0.0, 1.5])
def test_the_reference_itself_in_float64(softcap: float) -> None:
    case = make_case((9, 3, 32), [(0, 30), (17, 1), (40, 9)], torch.float64, 1, softcap)
    plan = reference.plan_attention(case.shape, case.spans, 7, torch.float64, Workspace())
    assert torch.allclose(reference.attend(case.queries, case.cache, plan), naive(case, 7), atol=1e-12)


def test_plain_causality_needs_no_mask_and_a_window_does() -> None:
    """Which path runs: the fused causal one only where it says the same."""
    case = make_case((4, 2, 16), [(0, 30), (5, 1), (9, 30)], torch.float32, 2)
    kernels = select("cpu", torch.float32, flash_attention=True)

    def chunk_masks(window: int | None) -> list[bool]:
        plan = kernels.plan_attention(case.shape, case.spans, window, torch.float32, Workspace())
        assert isinstance(plan, AttentionPlan)
        assert len(plan.groups) == 1
        return [chunk.mask is not None for chunk in plan.chunks]

    assert chunk_masks(None) == [False, True]
    assert chunk_masks(30) == [False, True]
    assert chunk_masks(29) == [True, True]


def test_short_sequences_do_not_pay_for_a_long_one() -> None:
    shape = AttentionShape(4, 2, 16, 0.25, T)
    spans = [Span(row, 1, position, []) for row, position in enumerate([1000, 10, 11, 990, 12, 9])]
    assert [[span.row for span in group] for group in group_by_length(spans, shape, None)] == [[0, 3], [1, 2, 4, 5]]
    assert len(group_by_length(spans, shape, 8)) == 1  # behind a window all are short
    assert group_by_length([], shape, None) == []


def test_contexts_are_gathered_in_parts_that_stay_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sequences of 10 blocks, 32,768 values each, are within the bound; a longer one goes alone."""
    shape = AttentionShape(8, 8, 128, 0.1, 16)
    positions = 10 * 16
    spans = [Span(row, 1, positions - 1, []) for row in range(8)]

    def sizes(shape: AttentionShape, spans: list[Span]) -> list[int]:
        return [len(group) for group in group_by_length(spans, shape, None)]

    assert sizes(shape, spans) == [3, 3, 2]
    assert sizes(shape, [Span(0, 1, 20 * positions, []), *spans[1:3]]) == [1, 2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    one_head = AttentionShape(8, 1, 1024, 0.1, 16)
    assert sizes(one_head, spans) == [4, 4], "as many as there are threads"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    longer = [Span(row, 1, 8 * positions - 1, []) for row in range(8)]
    assert sizes(one_head, longer) == [3, 3, 2], "but not more scratch memory than that"


@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_context_in_a_row_is_used_where_it_lies_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, softcap: float
) -> None:
    monkeypatch.setattr(groups, "IN_PLACE_VALUES", 4096)
    shape = AttentionShape(4, 2, 16, 0.25, T, softcap)
    cache = torch.randn(200, T * shape.kv_width).to(dtype)
    cache[0] = 0
    queries = torch.randn(3, 4, 16).to(dtype)
    spans = [
        Span(0, 1, 60 * T - 2, list(range(30, 90))),
        Span(1, 1, 30 * T - 1, [9, *range(101, 130)]),
        Span(2, 1, 2 * T - 1, [5, 6]),
    ]
    # Behind the window are 37 blocks of the first, and the one of the second that lies elsewhere.
    for window, chosen, places in ((None, spans, [30, None, None]), (90, spans[:1], [67]), (90, spans[1:2], [107])):
        rows = [replace(span, row=row) for row, span in enumerate(chosen)]
        case = Case(shape, rows, queries[: len(rows)], cache)
        plan = attention.plan_attention(shape, rows, window, dtype, Workspace())
        assert [group.place for group in plan.groups] == places
        gathered = replace(plan, groups=tuple(replace(group, place=None) for group in plan.groups))
        got = attention.attend(case.queries, cache, plan)
        assert torch.equal(got, attention.attend(case.queries, cache, gathered))
        assert (got.double() - naive(case, window)).abs().max() < 0.03


def test_decoding_alone_or_beside_others_differs_in_the_last_bit_at_most() -> None:
    case = make_case((9, 3, 64), [(70, 1), (13, 1), (33, 1), (16, 1)], torch.bfloat16, 3)
    together = attend(case, None, "cpu")
    for span in case.spans:
        alone = Case(
            case.shape, [Span(0, 1, span.start, span.blocks)], case.queries[span.row : span.row + 1], case.cache
        )
        assert torch.allclose(attend(alone, None, "cpu")[0], together[span.row], rtol=2**-7, atol=2**-12)


def test_status_says_what_runs_for_a_soft_cap() -> None:
    """And it does run: the other path is never entered."""
    plain = AttentionShape(4, 2, 16, 0.25, T)
    capped = replace(plain, softcap=50.0)
    fused = select("cpu", torch.float32, flash_attention=True)
    explicit = select("cpu", torch.float32, flash_attention=False)

    def attention_names(kernels: Kernels, shape: AttentionShape) -> tuple[str, str]:
        names = kernels.names_for(shape)
        assert set(names) == set(kernels.names)
        return names["attention_prefill"], names["attention_decode"]

    assert attention_names(fused, plain) == ("cpu.sdpa", "cpu.sdpa_grouped")
    assert attention_names(fused, capped) == ("cpu.softcap_tiled", "cpu.softcap_grouped")
    assert attention_names(explicit, capped) == ("reference.softmax", "reference.softmax")


@pytest.mark.parametrize(("softcap", "unused"), [(0.0, "softcap"), (2.0, "sdpa")])
def test_the_path_follows_the_shape(monkeypatch: pytest.MonkeyPatch, softcap: float, unused: str) -> None:
    monkeypatch.setattr(attention, unused, None)  # entering it would raise
    case = make_case((4, 2, 16), [(0, 30), (5, 1), (9, 30), (50, 1)], torch.float32, 4, softcap)
    assert (attend(case, None, "cpu").double() - naive(case, None)).abs().max() < 1e-5


@given(window=WINDOWS, tile=st.sampled_from([1, 100, 200, 1000]), seed=st.integers(0, 1 << 30))
@settings(max_examples=25, deadline=None)
def test_a_long_prompts_scores_are_taken_in_tiles(window: int | None, tile: int, seed: int) -> None:
    """Whatever the tile, the numbers are the same; a tile's scores are within the bound, or one row's."""
    case = make_case((6, 2, 8), [(3, 61)], torch.float32, seed, 2.0)
    held: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(softcapped, "TILE_VALUES", tile)
        capped = softcapped._capped
        patch.setattr(
            softcapped, "_capped", lambda scores, shape: (held.append(scores.numel()), capped(scores, shape))[1]
        )
        got = attend(case, window, "cpu")
    assert (got.double() - naive(case, window)).abs().max() < 1e-5
    assert max(held) <= max(tile, 3 * 64)
    assert tile >= 3 * 64 or len(held) == 2 * 61
