"""A whole step of one layer in Triton as an engine makes it: new keys and values written, prompts and single positions
side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from halogen_kernels import Workspace
from halogen_kernels.triton import attention, attention_plan, launching
from halogen_kernels.triton.write_kv import write_kv
from support.paged import CHUNK_BLOCKS, CHUNKS, PagedCase, T, empty_cache, make_case, read_back

MIXED = [(30, 1), (0, 20), (90, 1), (16, 33), (0, 1)]


def slots_of(case: PagedCase) -> torch.Tensor:
    """Of the rows of the step."""
    positions = [(span, span.start + offset) for span in case.spans for offset in range(span.count)]
    return torch.tensor([span.blocks[place // T] * T + place % T for span, place in positions])


@pytest.mark.parametrize("window", [None, 18])
def test_a_step_of_prompts_and_single_positions(device: torch.device, window: int | None) -> None:
    """Q, K and V are parts of what one projection gave; what the step writes was not there before."""
    case = make_case((4, 2, 64), MIXED, device, torch.float32, torch.float32)
    slots = slots_of(case)
    rows = case.values.view(-1, case.shape.kv_width)
    kv = rows[slots].float().to(device)
    for slot in slots.tolist():
        chunk = case.chunks[slot // (CHUNK_BLOCKS * T)]
        assert chunk is not None
        chunk.view(-1, case.shape.kv_width)[slot % (CHUNK_BLOCKS * T)] = float("nan")
    qkv = torch.cat([case.queries, kv.view(len(kv), -1, 64)], dim=1)

    write_kv(case.cache, slots.to(device), qkv[:, 4:].flatten(1))
    plan = attention.plan_attention(case.shape, case.spans, window, torch.float32, Workspace(device))
    with launching.launched() as variants:
        got = attention.attend(qkv[:, :4], case.cache, plan)
    assert {variant.op for variant in variants} == {"paged_prefill", "paged_decode"}
    assert got.isfinite().all()
    assert (got.cpu().double() - case.expected(window)).abs().max() < 1e-5


def test_a_run_is_longer_than_a_chunk(device: torch.device) -> None:
    """Then no address serves a tile, and none is made to."""
    case = make_case((4, 2, 64), [(0, 130), (129, 1)], device, torch.float32, torch.float32, layout="runs")
    whole = [chunk for chunk in case.chunks if chunk is not None]
    halves = [part for chunk in whole for part in chunk.view(CHUNK_BLOCKS // 2, 2, -1).unbind(0)]
    order = torch.randperm(len(halves)).tolist()
    moved = [halves[number].clone() for number in order]
    numbers = [chunk for chunk, held in enumerate(case.chunks) if held is not None]
    table = torch.zeros(CHUNKS * CHUNK_BLOCKS // 2, dtype=torch.int64)
    for place, number in enumerate(order):
        chunk, half = divmod(number, CHUNK_BLOCKS // 2)
        table[numbers[chunk] * (CHUNK_BLOCKS // 2) + half] = moved[place].data_ptr()
    cache = replace(case.cache, addresses=table.to(device), chunk_blocks=2)
    plan = attention_plan.make_plan(case.shape, case.spans, None, torch.float32, device)
    with launching.launched() as variants:
        got = attention.attend(case.queries, cache, plan)
    assert [variant.constexprs.get("RUN") for variant in variants] == [False, None]
    assert (got.cpu().double() - case.expected(None)).abs().max() < 1e-5


@pytest.mark.parametrize(("head_dim", "parts"), [(80, 2), (256, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
def test_products_may_be_made_in_parts_of_a_head(
    device: torch.device, dtype: torch.dtype, head_dim: int, parts: int
) -> None:
    """For devices whose registers hold no whole one."""
    case = make_case((2, 1, head_dim), [(5, 20), (70, 1)], device, dtype, torch.float32, softcap=3.0)
    plan = attention_plan.make_plan(case.shape, case.spans, None, dtype, device)
    assert plan.prefill is not None
    assert plan.decode is not None
    cut = [replace(part, sizes={**part.sizes, "PARTS": parts}) for part in (plan.prefill, plan.decode)]
    with launching.launched() as variants:
        got = attention.attend(case.queries, case.cache, replace(plan, prefill=cut[0], decode=cut[1]))
    assert [variant.constexprs["PARTS"] for variant in variants] == [parts, parts]
    assert (got.cpu().double() - case.expected(None)).abs().max() < 1e-5


def test_keys_and_values_of_eight_bits_from_write_to_result(device: torch.device) -> None:
    """Beside what was meant, before it was rounded."""
    case = make_case((4, 2, 64), [(0, 40)], device)
    kv = case.values.view(-1, case.shape.kv_width)[slots_of(case)].bfloat16().to(device)
    plan = attention_plan.make_plan(case.shape, case.spans, None, torch.bfloat16, device)
    for dtype, limit in ((torch.int8, 0.06), (torch.float8_e4m3fn, 0.25)):
        cache, chunks, scales = empty_cache(2, 64, dtype, device)
        write_kv(cache, slots_of(case).to(device), kv)
        got = attention.attend(case.queries, cache, plan)
        case.values = read_back(chunks, scales, 64).flatten(1)
        assert (got.cpu().double() - case.expected(None)).abs().max() < 0.03
        case.values.view(-1, case.shape.kv_width)[slots_of(case)] = kv.cpu().double()
        assert (got.cpu().double() - case.expected(None)).abs().max() < limit
