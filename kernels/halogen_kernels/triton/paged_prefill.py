"""Attention of prompt chunks over paged keys and values: causal, with a prefix, a window, a soft cap, grouped queries.

    rows of a span     position 0: heads of the group | position 1: heads of the group | ...
                       |--- a tile of BLOCK_M rows ---|--- ...
    keys of a tile     |  masked  |   every row sees these   | masked  |
                       window's edge                         diagonal

A program takes one tile of rows of one key/value head, and walks over the tiles of keys that any of them sees, those
without a mask in a loop of their own (Dao, 2023).
"""

from __future__ import annotations

from itertools import chain

import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton import attention_cases
from halogen_kernels.triton.attention_plan import AttentionPlan, PrefillRows, PrefillTiles
from halogen_kernels.triton.chunked import ChunkedCache
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.paged_arguments import constants, numbers_of, tables_of
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.triton.tiles import LOWEST, fold_tile, query_of


def paged_prefill(queries: Tensor, cache: ChunkedCache, plan: AttentionPlan, out: Tensor) -> None:
    """The rows of `plan.prefill` of `queries` [n, H, d] into the same rows of `out` [n, H * d]. The last two axes of
    queries are contiguous, and their rows a whole number of heads apart."""
    if plan.prefill is not None:
        for tiles in plan.prefill.lists:
            _launch(queries, cache, plan, (plan.prefill, tiles), out)


def _launch(
    queries: Tensor, cache: ChunkedCache, plan: AttentionPlan, part: tuple[PrefillRows, PrefillTiles], out: Tensor
) -> None:
    shape, (rows, tiles) = plan.shape, part
    launch(
        prefill_tiles,
        (shape.kv_heads, len(tiles.tiles)),
        queries,
        *tables_of(cache),
        rows.tables,
        rows.spans,
        tiles.tiles,
        out,
        *numbers_of(queries, cache, plan, rows.tables),
        RUN=tiles.in_runs and cache.chunk_blocks * shape.block_tokens >= rows.sizes["BLOCK_N"],
        SOFTCAP=shape.softcap != 0,
        **constants(cache, queries.dtype),
        **rows.sizes,
    )


def rehearse(shapes: Shapes) -> None:
    aligned, elsewhere = 0, 1
    cases = (attention_cases.attended(shapes, 2, block) for block in (aligned, elsewhere))
    for queries, cache, plan, out in chain.from_iterable(cases):
        paged_prefill(queries, cache, plan, out)


@triton.jit
def tiles_seen(low_row, high_row, window, BLOCK_N: tl.constexpr):
    """Of the tiles of keys that rows at positions `low_row` to `high_row` see: the first and the end of all, and of
    those among them that every row sees whole."""
    first = tl.maximum(low_row - window + 1, 0) // BLOCK_N
    end = tl.cdiv(high_row + 1, BLOCK_N)
    whole = tl.minimum(tl.maximum(tl.cdiv(tl.maximum(high_row - window + 1, 0), BLOCK_N), first), end)
    whole_end = tl.maximum(tl.minimum((low_row + 1) // BLOCK_N, end), whole)
    return first, end, whole, whole_end


@triton.jit(do_not_specialize=["window", "shift", "kv_heads", "group", "row_heads", "table_stride"])
def prefill_tiles(
    queries, addresses, scale_addresses, tables, spans, tiles, out,
    inner, outer, window, shift, kv_heads, group, row_heads, table_stride,
    HEAD_DIM: tl.constexpr, D: tl.constexpr, T: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    RUN: tl.constexpr, HELD: tl.constexpr, CODE: tl.constexpr, DOT: tl.constexpr, SOFTCAP: tl.constexpr,
    PARTS: tl.constexpr = 1,
):  # fmt: skip
    head = tl.program_id(0)
    span = tl.load(tiles + 2 * tl.program_id(1))
    first = tl.load(tiles + 2 * tl.program_id(1) + 1)
    row = tl.load(spans + 4 * span)
    count = tl.load(spans + 4 * span + 1)
    start = tl.load(spans + 4 * span + 2)
    last = tl.load(spans + 4 * span + 3)
    blocks = tables + span * table_stride

    flat = first + tl.arange(0, BLOCK_M)
    held = flat < count * group
    at = tl.minimum(flat // group, count - 1)
    heads = head * group + flat % group
    dims = tl.arange(0, D)
    inside = held[:, None] & (dims < HEAD_DIM)[None, :]
    query = queries + ((row + at).to(tl.int64) * row_heads + heads) * HEAD_DIM
    query = query_of(query, held, HEAD_DIM, D, DOT, PARTS)

    position = start + at
    low_row = start + first // group
    high_row = start + tl.minimum((first + BLOCK_M - 1) // group, count - 1)
    low = tl.maximum(low_row - window + 1, 0)
    high = high_row + 1
    first_tile, end_tile, whole, whole_end = tiles_seen(low_row, high_row, window, BLOCK_N)

    acc = tl.zeros([BLOCK_M, D], tl.float32)
    peak = tl.full([BLOCK_M], LOWEST, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    for tile in range(whole, whole_end):
        acc, peak, total = fold_tile(
            acc, peak, total, query, held, addresses, scale_addresses, blocks, tile, last, low, high, position, window,
            inner, outer, shift, head, kv_heads, HEAD_DIM, D, T, BLOCK_N, RUN, "none", HELD, CODE, DOT, SOFTCAP, PARTS,
        )  # fmt: skip
    for number in range(first_tile, end_tile - (whole_end - whole)):
        tile = number + tl.where(number >= whole, whole_end - whole, 0)
        acc, peak, total = fold_tile(
            acc, peak, total, query, held, addresses, scale_addresses, blocks, tile, last, low, high, position, window,
            inner, outer, shift, head, kv_heads, HEAD_DIM, D, T, BLOCK_N, RUN, "rows", HELD, CODE, DOT, SOFTCAP, PARTS,
        )  # fmt: skip

    places = ((row + at).to(tl.int64) * (kv_heads * group) + heads) * HEAD_DIM
    mixed = acc / total[:, None]
    tl.store(out + places[:, None] + dims[None, :], mixed.to(out.dtype.element_ty), mask=inside)
