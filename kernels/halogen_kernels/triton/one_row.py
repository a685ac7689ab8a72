"""The product of one row of x with rows of a matrix, or of two: no tensor core has enough to do, and none is asked.

Each thread multiplies what it reads and keeps its own sums, in float32; they are added up once, at the end.
"""

from __future__ import annotations

import triton
import triton.language as tl

from halogen_kernels.triton.codes import GROUP, HALF, TILE_BYTES, counted, widened


@triton.jit
def one_row_of_rows(
    x_rows,
    kept,
    codes,
    up_codes,
    outs,
    rows,
    stride,
    first,
    last,
    KIND: tl.constexpr,
    TWO: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """For all kinds but int4: [1, BLOCK_N] of each matrix, zeros of the second where there is none."""
    sums = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    up_sums = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    k = tl.arange(0, BLOCK_K)
    at = tl.minimum(outs, rows - 1).to(tl.int64)[:, None] * stride + k[None, :]
    for start in range(first, last, BLOCK_K):
        inside = start + k < last
        x = tl.load(x_rows + (start + k), mask=kept & inside, other=0.0).to(tl.float32)[None, :]
        held = tl.load(codes + start + at, mask=inside[None, :], other=0)
        sums += widened(held, KIND, tl.float32) * x
        if TWO:
            up_held = tl.load(up_codes + start + at, mask=inside[None, :], other=0)
            up_sums += widened(up_held, KIND, tl.float32) * x
    return tl.sum(sums, 1)[None, :], tl.sum(up_sums, 1)[None, :]


@triton.jit
def add_halves(sums, low, high, codes, scales, minima, at, scale_at, inside):
    """`sums` [GROUPS * 16, N] and the products of x's halves of groups, [GROUPS * 16, 1] each, with what is `at`."""
    held = tl.load(codes + at, mask=inside, other=0)
    scale = tl.load(scales + scale_at, mask=inside, other=0.0).to(tl.float32)
    minimum = tl.load(minima + scale_at, mask=inside, other=0.0).to(tl.float32)
    return sums + (counted(held & 15) * low + counted(held >> 4) * high) * scale + minimum * (low + high)


@triton.jit
def one_row_of_tiles(
    x_rows,
    kept,
    codes,
    scales,
    minima,
    up_codes,
    up_scales,
    up_minima,
    outs,
    rows,
    stride,
    first,
    last,
    TWO: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """For int4, likewise."""
    HALVES: tl.constexpr = BLOCK_K // 2
    sums = tl.zeros((HALVES, BLOCK_N), dtype=tl.float32)
    up_sums = tl.zeros((HALVES, BLOCK_N), dtype=tl.float32)
    tile = (outs // 32).to(tl.int64) * (stride // GROUP)
    there = outs < (rows + 31) // 32 * 32
    j = tl.arange(0, HALVES)
    at = (tile * TILE_BYTES + outs % 32)[None, :] + (j * 32)[:, None]
    scale_at = (tile * GROUP + outs % 32)[None, :] + (j // HALF * 32)[:, None]
    columns = j // HALF * GROUP + j % HALF
    for start in range(first, last, BLOCK_K):
        ahead = start + columns < last
        low = tl.load(x_rows + (start + columns), mask=kept & ahead, other=0.0).to(tl.float32)[:, None]
        high = tl.load(x_rows + (start + columns + HALF), mask=kept & ahead, other=0.0).to(tl.float32)[:, None]
        inside = ahead[:, None] & there[None, :]
        place, scale_place = at + start * HALF, scale_at + start
        sums = add_halves(sums, low, high, codes, scales, minima, place, scale_place, inside)
        if TWO:
            up_sums = add_halves(up_sums, low, high, up_codes, up_scales, up_minima, place, scale_place, inside)
    return tl.sum(sums, 0)[None, :], tl.sum(up_sums, 0)[None, :]
