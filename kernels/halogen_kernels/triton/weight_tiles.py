"""What every kernel over a matrix does: the product of a tile of rows with a tile of one matrix, or of two.

Sums are in float32. Of int4 with few rows of x, the codes are multiplied as they are, exactly, and each group's sums
are scaled; with many rows that would cost more than the product, so there the values are made first, and rounded to
x's dtype. One row alone has kernels' parts of its own, in `one_row`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from halogen_kernels.triton.codes import GROUP, HALF, TILE_BYTES, counted, widened
from halogen_kernels.triton.one_row import one_row_of_rows, one_row_of_tiles


@triton.jit
def add_rows(sums, x, codes, at, inside, KIND: tl.constexpr):
    """`sums` [M, N] and the product of x [M, K] with the codes `at` [K, N]."""
    held = tl.load(codes + at, mask=inside[:, None], other=0)
    return tl.dot(x, widened(held, KIND, x.dtype), sums, input_precision="ieee")


@triton.jit
def add_group(sums, low, high, total, codes, scales, minima, at, scale_at, inside):
    """`sums` [M, N] and the product with one group of columns: x's first and second half of them, [M, 16] each, and
    the sums of both, `total` [M]. `inside` [N]."""
    held = tl.load(codes + at, mask=inside[None, :], other=0)
    part = tl.dot(low, counted(held & 15).to(low.dtype), input_precision="ieee")
    part = tl.dot(high, counted(held >> 4).to(low.dtype), part, input_precision="ieee")
    scale = tl.load(scales + scale_at, mask=inside, other=0.0).to(tl.float32)
    minimum = tl.load(minima + scale_at, mask=inside, other=0.0).to(tl.float32)
    return sums + part * scale[None, :] + total[:, None] * minimum[None, :]


@triton.jit
def spread(values, GROUPS: tl.constexpr, BLOCK_N: tl.constexpr):
    """[GROUPS, N] -> [GROUPS * 16, N], each row 16 times."""
    wide = tl.broadcast_to(values.to(tl.float32)[:, None, :], (GROUPS, HALF, BLOCK_N))
    return tl.reshape(wide, (GROUPS * HALF, BLOCK_N))


@triton.jit
def add_groups(
    sums,
    low,
    high,
    codes,
    scales,
    minima,
    at,
    scale_at,
    inside,
    scale_inside,
    GROUPS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """`sums` [M, N] and the product with several groups, whose values are made first: x's halves of groups are
    [M, GROUPS * 16], codes [GROUPS * 16, N], scales [GROUPS, N]."""
    held = tl.load(codes + at, mask=inside, other=0)
    scale = spread(tl.load(scales + scale_at, mask=scale_inside, other=0.0), GROUPS, BLOCK_N)
    minimum = spread(tl.load(minima + scale_at, mask=scale_inside, other=0.0), GROUPS, BLOCK_N)
    first = (counted(held & 15) * scale + minimum).to(low.dtype)
    second = (counted(held >> 4) * scale + minimum).to(low.dtype)
    sums = tl.dot(low, first, sums, input_precision="ieee")
    return tl.dot(high, second, sums, input_precision="ieee")


@triton.jit
def rows_products(
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """For all kinds but int4."""
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up_sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    k = tl.arange(0, BLOCK_K)
    at = tl.minimum(outs, rows - 1).to(tl.int64)[None, :] * stride + k[:, None]
    for start in range(first, last, BLOCK_K):
        inside = start + k < last
        x = tl.load(x_rows[:, None] + (start + k)[None, :], mask=kept[:, None] & inside[None, :], other=0.0)
        sums = add_rows(sums, x, codes + start, at, inside, KIND)
        if TWO:
            up_sums = add_rows(up_sums, x, up_codes + start, at, inside, KIND)
    return sums, up_sums


@triton.jit
def tiles_products(
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """For int4 and many rows of x."""
    GROUPS: tl.constexpr = BLOCK_K // GROUP
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up_sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    groups = stride // GROUP
    tile = (outs // 32).to(tl.int64) * groups
    held = outs < (rows + 31) // 32 * 32
    j = tl.arange(0, GROUPS * HALF)
    g = tl.arange(0, GROUPS)
    at = (tile * TILE_BYTES + outs % 32)[None, :] + (j * 32)[:, None]
    scale_at = (tile * GROUP + outs % 32)[None, :] + (g * 32)[:, None]
    columns = j // HALF * GROUP + j % HALF
    for start in range(first, last, BLOCK_K):
        ahead = start + columns < last
        x_inside = kept[:, None] & ahead[None, :]
        low = tl.load(x_rows[:, None] + (start + columns)[None, :], mask=x_inside, other=0.0)
        high = tl.load(x_rows[:, None] + (start + columns + HALF)[None, :], mask=x_inside, other=0.0)
        inside = ahead[:, None] & held[None, :]
        scale_inside = (start + g * GROUP < last)[:, None] & held[None, :]
        step, scale_step = at + start * HALF, scale_at + start
        sums = add_groups(
            sums, low, high, codes, scales, minima, step, scale_step, inside, scale_inside, GROUPS, BLOCK_N
        )
        if TWO:
            up_sums = add_groups(
                up_sums, low, high, up_codes, up_scales, up_minima,
                step, scale_step, inside, scale_inside, GROUPS, BLOCK_N,
            )  # fmt: skip
    return sums, up_sums


@triton.jit
def groups_products(
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """For int4 and few rows of x."""
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up_sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tile = (outs // 32).to(tl.int64) * (stride // GROUP)
    held = outs < (rows + 31) // 32 * 32
    j = tl.arange(0, HALF)
    at = (tile * TILE_BYTES + outs % 32)[None, :] + (j * 32)[:, None]
    scale_at = tile * GROUP + outs % 32
    for start in range(first, last, BLOCK_K):
        for step in tl.static_range(0, BLOCK_K, GROUP):
            column = start + step
            x_inside = kept[:, None] & (column < last)
            low = tl.load(x_rows[:, None] + (column + j)[None, :], mask=x_inside, other=0.0)
            high = tl.load(x_rows[:, None] + (column + (j + HALF))[None, :], mask=x_inside, other=0.0)
            total = tl.sum(low.to(tl.float32), 1) + tl.sum(high.to(tl.float32), 1)
            inside = held & (column < last)
            place, scale_place = at + column * HALF, scale_at + column
            sums = add_group(sums, low, high, total, codes, scales, minima, place, scale_place, inside)
            if TWO:
                up_sums = add_group(
                    up_sums, low, high, total, up_codes, up_scales, up_minima, place, scale_place, inside
                )
    return sums, up_sums


@triton.jit
def products(
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
    KIND: tl.constexpr,
    TWO: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Rows of x, at the pointers `x_rows` [BLOCK_M] where `kept`, with the matrix's rows `outs` [BLOCK_N], of columns
    `first` to `last` - 1, both multiples of 16: float32 [BLOCK_M, BLOCK_N]; of the second matrix too where TWO, else
    zeros."""
    if KIND == "int4":
        if BLOCK_M == 1:
            sums, up_sums = one_row_of_tiles(
                x_rows, kept, codes, scales, minima, up_codes, up_scales, up_minima,
                outs, rows, stride, first, last, TWO, BLOCK_N, BLOCK_K,
            )  # fmt: skip
        elif BLOCK_M <= 16:
            sums, up_sums = groups_products(
                x_rows, kept, codes, scales, minima, up_codes, up_scales, up_minima,
                outs, rows, stride, first, last, TWO, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
        else:
            sums, up_sums = tiles_products(
                x_rows, kept, codes, scales, minima, up_codes, up_scales, up_minima,
                outs, rows, stride, first, last, TWO, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
    else:
        if BLOCK_M == 1:
            sums, up_sums = one_row_of_rows(
                x_rows, kept, codes, up_codes, outs, rows, stride, first, last, KIND, TWO, BLOCK_N, BLOCK_K
            )
        else:
            sums, up_sums = rows_products(
                x_rows, kept, codes, up_codes, outs, rows, stride, first, last, KIND, TWO, BLOCK_M, BLOCK_N, BLOCK_K
            )
        if KIND != "plain":
            place = tl.minimum(outs, rows - 1)
            sums = sums * tl.load(scales + place)[None, :]
            if TWO:
                up_sums = up_sums * tl.load(up_scales + place)[None, :]
    return sums, up_sums
