"""Attention of single positions over long contexts: each context in parts, then the parts put together.

    program (key/value head, part, sequence)    its tiles of keys -> sums [heads, d], peaks [heads, 2]
    program (rows of sequence x head)           all parts -> out

One part alone goes to the result at once. The arithmetic is memory's: all query heads of a key/value head are rows of
one product, so that its keys are read once (Dao and others, Flash-Decoding, 2023). A program looks first whether
its blocks lie in runs, and then reads a tile from one address.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, float32

from halogen_kernels.triton import attention_cases, tuning
from halogen_kernels.triton.attention_plan import HEADS_AT_ONCE, SPLIT_TOKENS, AttentionPlan, DecodeRows
from halogen_kernels.triton.chunked import ChunkedCache
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.paged_arguments import LEAST_DIM, constants, numbers_of, tables_of
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.triton.tiles import LOWEST, fold_tile, lies_in_runs, query_of

_NONE = 4  # values of a tensor that is not used


def paged_decode(queries: Tensor, cache: ChunkedCache, plan: AttentionPlan, out: Tensor) -> None:
    """The rows of `plan.decode` of `queries` [n, H, d] into the same rows of `out` [n, H * d]. The last two axes of
    queries are contiguous, and their rows a whole number of heads apart. Zeros go into rows that are padding."""
    rows, shape = plan.decode, plan.shape
    if rows is None:
        return
    parts = (len(rows.rows), rows.splits, shape.heads) if rows.splits > 1 else (_NONE,)
    sums = queries.new_empty((*parts, shape.head_dim), dtype=float32)
    peaks = queries.new_empty((*parts, 2), dtype=float32)
    _launch_parts(queries, cache, plan, rows, (out, sums, peaks))
    if rows.splits > 1:
        _launch_combine(rows, sums, peaks, out)


def _launch_parts(
    queries: Tensor, cache: ChunkedCache, plan: AttentionPlan, rows: DecodeRows, results: tuple[Tensor, Tensor, Tensor]
) -> None:
    shape = plan.shape
    launch(
        context_parts,
        (shape.kv_heads * -(-shape.group // HEADS_AT_ONCE), rows.splits, len(rows.rows)),
        queries,
        *tables_of(cache),
        rows.tables,
        rows.rows,
        *results,
        *numbers_of(queries, cache, plan, rows.tables),
        rows.splits,
        SPLIT=max(1, SPLIT_TOKENS // rows.sizes["BLOCK_N"]),
        SOFTCAP=shape.softcap != 0,
        HEADS=HEADS_AT_ONCE,
        **constants(cache, queries.dtype),
        **rows.sizes,
    )


def _launch_combine(rows: DecodeRows, sums: Tensor, peaks: Tensor, out: Tensor) -> None:
    heads, head_dim = sums.shape[2:]
    pairs = len(rows.rows) * heads
    sizes = tuning.pick("paged_decode", kernel="combine", head_dim=head_dim)
    padded = max(LEAST_DIM, triton.next_power_of_2(head_dim))
    grid = (-(-pairs // sizes["ROWS"]),)
    numbers = (pairs, heads, rows.splits)
    launch(combine_parts, grid, rows.rows, sums, peaks, out, *numbers, HEAD_DIM=head_dim, D=padded, **sizes)


def rehearse(shapes: Shapes) -> None:
    for queries, cache, plan, out in attention_cases.attended(shapes, 1, 0):
        rows = plan.decode
        if rows is None:
            raise ValueError("a single position is decoded")
        halves = DecodeRows(rows.rows, rows.tables, 2, rows.sizes)
        paged_decode(queries, cache, AttentionPlan(plan.shape, plan.window, None, halves), out)


@triton.jit
def tiles_of_part(low, end, part, splits, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr):
    """The first and the end of the tiles of keys that are one part's, of those with positions `low` to `end` - 1."""
    first_tile = low // BLOCK_N
    end_tile = tl.cdiv(end, BLOCK_N)
    tiles = tl.maximum(tl.cdiv(end_tile - first_tile, splits), SPLIT)
    first = first_tile + part * tiles
    return first, tl.minimum(first + tiles, end_tile)


@triton.jit(do_not_specialize=["window", "shift", "kv_heads", "group", "row_heads", "table_stride", "splits"])
def context_parts(
    queries, addresses, scale_addresses, tables, rows, out, sums, peaks,
    inner, outer, window, shift, kv_heads, group, row_heads, table_stride, splits,
    HEAD_DIM: tl.constexpr, D: tl.constexpr, T: tl.constexpr, HEADS: tl.constexpr, BLOCK_N: tl.constexpr,
    SPLIT: tl.constexpr, STEP: tl.constexpr, HELD: tl.constexpr, CODE: tl.constexpr, DOT: tl.constexpr,
    SOFTCAP: tl.constexpr, PARTS: tl.constexpr = 1,
):  # fmt: skip
    head = tl.program_id(0) % kv_heads
    part = tl.program_id(1)
    sequence = tl.program_id(2)
    row = tl.load(rows + 2 * sequence)
    end = tl.load(rows + 2 * sequence + 1)
    blocks = tables + sequence * table_stride
    member = tl.program_id(0) // kv_heads * HEADS + tl.arange(0, HEADS)
    heads = head * group + member
    all_heads = kv_heads * group
    dims = tl.arange(0, D)
    inside = (member < group)[:, None] & (dims < HEAD_DIM)[None, :]
    places = heads[:, None] * HEAD_DIM + dims[None, :]
    held = member < group
    query = queries + (row.to(tl.int64) * row_heads + heads) * HEAD_DIM
    query = query_of(query, held, HEAD_DIM, D, DOT, PARTS)

    low = tl.maximum(end - window, 0)
    first, stop = tiles_of_part(low, end, part, splits, BLOCK_N, SPLIT)
    last = tl.cdiv(end, T)

    acc = tl.zeros([HEADS, D], tl.float32)
    peak = tl.full([HEADS], LOWEST, tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    first_block = tl.maximum(first * (BLOCK_N // T), low // T)
    stop_block = tl.minimum(stop * (BLOCK_N // T), last)
    if lies_in_runs(blocks, first_block, stop_block, shift, T, BLOCK_N, STEP):
        for tile in range(first, stop):
            acc, peak, total = fold_tile(
                acc, peak, total, query, held, addresses, scale_addresses, blocks, tile, last, low, end, end, window,
                inner, outer, shift, head, kv_heads, HEAD_DIM, D, T, BLOCK_N, True, "ends", HELD, CODE, DOT, SOFTCAP,
                PARTS,
            )  # fmt: skip
    else:
        for tile in range(first, stop):
            acc, peak, total = fold_tile(
                acc, peak, total, query, held, addresses, scale_addresses, blocks, tile, last, low, end, end, window,
                inner, outer, shift, head, kv_heads, HEAD_DIM, D, T, BLOCK_N, False, "ends", HELD, CODE, DOT, SOFTCAP,
                PARTS,
            )  # fmt: skip

    if splits == 1:
        mixed = acc / tl.where(total > 0, total, 1.0)[:, None]
        result = out + row.to(tl.int64) * all_heads * HEAD_DIM + places
        tl.store(result, mixed.to(out.dtype.element_ty), mask=inside)
    else:
        own = (sequence * splits + part) * all_heads
        tl.store(sums + own.to(tl.int64) * HEAD_DIM + places, acc, mask=inside)
        tl.store(peaks + 2 * (own + heads), peak, mask=held)
        tl.store(peaks + 2 * (own + heads) + 1, total, mask=held)


@triton.jit(do_not_specialize=["pairs", "heads", "splits"])
def combine_parts(
    rows, sums, peaks, out, pairs, heads, splits, HEAD_DIM: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr
):
    """Sums of `splits` parts, each in proportion to its own peak, brought to a common one."""
    pair = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    held = pair < pairs
    sequence = pair // heads
    head = pair % heads
    dims = tl.arange(0, D)
    acc = tl.zeros([ROWS, D], tl.float32)
    peak = tl.full([ROWS], LOWEST, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for part in range(splits):
        own = (sequence * splits + part) * heads + head
        other_peak = tl.load(peaks + 2 * own, mask=held, other=LOWEST)
        other_total = tl.load(peaks + 2 * own + 1, mask=held, other=0.0)
        filled = (other_total > 0)[:, None] & (dims < HEAD_DIM)[None, :]
        more = tl.load(sums + own.to(tl.int64)[:, None] * HEAD_DIM + dims[None, :], mask=filled, other=0.0)
        higher = tl.maximum(peak, other_peak)
        kept = tl.exp2(peak - higher)
        share = tl.exp2(other_peak - higher)
        acc = acc * kept[:, None] + more * share[:, None]
        total = total * kept + other_total * share
        peak = higher
    row = tl.load(rows + 2 * sequence, mask=held, other=0).to(tl.int64)
    mixed = acc / tl.where(total > 0, total, 1.0)[:, None]
    places = (row * heads + head)[:, None] * HEAD_DIM + dims[None, :]
    tl.store(out + places, mixed.to(out.dtype.element_ty), mask=held[:, None] & (dims < HEAD_DIM)[None, :])
