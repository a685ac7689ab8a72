"""What every kernel over a matrix does: the product of a tile of rows with a tile of one matrix, or of two.

Sums are in float32. Codes with a scale a row are exact in x's dtype, and sums are scaled at the end; values of int4
are made first, in float32, and rounded to x's dtype. One row alone of int4 has a way of its own, in `one_row`, which
rounds no value.
"""

from __future__ import annotations

import triton
import triton.language as tl

from halogen_kernels.triton.codes import GROUP, HALF, ONE_BITS, TILE_QUADS, in_order, quad_planes, sixteenths, widened
from halogen_kernels.triton.one_row import one_row


@triton.jit
def add_rows(sums, x, codes, at, inside, KIND: tl.constexpr):
    """`sums` [M, N] and the product of x [M, K] with the codes `at` [K, N]."""
    held = tl.load(codes + at, mask=inside[:, None], other=0)
    return tl.dot(x, widened(held, KIND, x.dtype), sums, input_precision="ieee")


@triton.jit
def rows_products(
    x_rows,
    kept,
    codes,
    up_codes,
    first_out,
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
    """For all kinds but int4, without the scales."""
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up_sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    k = tl.arange(0, BLOCK_K)
    outs = tl.minimum(first_out + tl.arange(0, BLOCK_N), rows - 1)
    at = outs.to(tl.int64)[None, :] * stride + k[:, None]
    for start in range(first, last, BLOCK_K):
        inside = start + k < last
        x = tl.load(x_rows[:, None] + (start + k)[None, :], mask=kept[:, None] & inside[None, :], other=0.0)
        sums = add_rows(sums, x, codes + start, at, inside, KIND)
        if TWO:
            up_sums = add_rows(up_sums, x, up_codes + start, at, inside, KIND)
    return sums, up_sums


@triton.jit
def spread(values, GROUPS: tl.constexpr, QUADS: tl.constexpr):
    """[GROUPS, QUADS] -> [GROUPS * 16, QUADS], each row 16 times."""
    wide = tl.broadcast_to(values[:, None, :], (GROUPS, HALF, QUADS))
    return tl.reshape(wide, (GROUPS * HALF, QUADS))


@triton.jit
def add_row_of_quads(
    sums,
    low,
    high,
    words,
    one,
    scales,
    minima,
    inside,
    BYTE: tl.constexpr,
    GROUPS: tl.constexpr,
    QUADS: tl.constexpr,
):
    """`sums` [M, QUADS] and the product of x's halves of groups, [M, GROUPS * 16] each, with one row of each quad,
    whose codes are a byte of `words` [GROUPS * 16, QUADS]. value = scale * code + minimum is
    16 scale * (1 + code / 16) + (minimum - 16 scale). `scales` and `minima` are addresses [GROUPS, QUADS]."""
    scale = tl.load(scales + BYTE, mask=inside, other=0.0).to(tl.float32) * 16.0
    base = spread(tl.load(minima + BYTE, mask=inside, other=0.0).to(tl.float32) - scale, GROUPS, QUADS)
    scale = spread(scale, GROUPS, QUADS)
    sums = tl.dot(low, (sixteenths(words, one, 8 * BYTE) * scale + base).to(low.dtype), sums, input_precision="ieee")
    return tl.dot(
        high, (sixteenths(words, one, 8 * BYTE + 4) * scale + base).to(low.dtype), sums, input_precision="ieee"
    )


@triton.jit
def quads_products(
    x_rows,
    kept,
    codes,
    scales,
    minima,
    first_out,
    rows,
    stride,
    first,
    last,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """For int4: [BLOCK_M, BLOCK_N]"""
    QUADS: tl.constexpr = BLOCK_N // 4
    GROUPS: tl.constexpr = BLOCK_K // GROUP
    a = tl.zeros((BLOCK_M, QUADS), dtype=tl.float32)
    b = tl.zeros((BLOCK_M, QUADS), dtype=tl.float32)
    c = tl.zeros((BLOCK_M, QUADS), dtype=tl.float32)
    d = tl.zeros((BLOCK_M, QUADS), dtype=tl.float32)
    # A compiler that knows all that values are made of makes them where they are multiplied: so does each warp for
    # itself, with few rows of x. With many, several warps would make the same ones, so there it is told less.
    one = ONE_BITS if BLOCK_M <= 16 else (tl.minimum(rows, 0) | ONE_BITS).to(tl.uint32)
    j = tl.arange(0, GROUPS * HALF)
    g = tl.arange(0, GROUPS)
    columns = j // HALF * GROUP + j % HALF
    codes_at, scale_at, there = quad_planes(codes, first_out, rows, stride, j * TILE_QUADS, QUADS, GROUPS)
    for start in range(first, last, BLOCK_K):
        ahead = start + columns < last
        x_inside = kept[:, None] & ahead[None, :]
        low = tl.load(x_rows[:, None] + (start + columns)[None, :], mask=x_inside, other=0.0)
        high = tl.load(x_rows[:, None] + (start + columns + HALF)[None, :], mask=x_inside, other=0.0)
        words = tl.load(codes_at + start * 4, mask=ahead[:, None] & there[None, :], other=0)
        inside = (start + g * GROUP < last)[:, None] & there[None, :]
        scale_of, minimum_of = scales + scale_at + start, minima + scale_at + start
        a = add_row_of_quads(a, low, high, words, one, scale_of, minimum_of, inside, 0, GROUPS, QUADS)
        b = add_row_of_quads(b, low, high, words, one, scale_of, minimum_of, inside, 1, GROUPS, QUADS)
        c = add_row_of_quads(c, low, high, words, one, scale_of, minimum_of, inside, 2, GROUPS, QUADS)
        d = add_row_of_quads(d, low, high, words, one, scale_of, minimum_of, inside, 3, GROUPS, QUADS)
    return in_order(a, b, c, d, BLOCK_M, BLOCK_N)


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
    first_out,
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
    """Rows of x, at the pointers `x_rows` [BLOCK_M] where `kept`, with the matrix's rows from `first_out` on, of
    columns `first` to `last` - 1, both multiples of 16: float32 [BLOCK_M, BLOCK_N]; of the second matrix too where
    TWO, else zeros or the same. Of int4 the two are read one after the other: words and sums of both together would
    fill the registers."""
    if KIND == "int4":
        sums = one_of_int4(
            x_rows, kept, codes, scales, minima, first_out, rows, stride, first, last, BLOCK_M, BLOCK_N, BLOCK_K
        )
        up_sums = sums
        if TWO:
            up_sums = one_of_int4(
                x_rows, kept, up_codes, up_scales, up_minima,
                first_out, rows, stride, first, last, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
    else:
        sums, up_sums = rows_products(
            x_rows, kept, codes, up_codes, first_out, rows, stride, first, last, KIND, TWO, BLOCK_M, BLOCK_N, BLOCK_K
        )
        if KIND != "plain":
            place = tl.minimum(first_out + tl.arange(0, BLOCK_N), rows - 1)
            sums = sums * tl.load(scales + place)[None, :]
            if TWO:
                up_sums = up_sums * tl.load(up_scales + place)[None, :]
    return sums, up_sums


@triton.jit
def put_rows(out, values, row, kept, outs, inside, stride):
    """`values` [M, N] into `out`: into its rows `row`, int64, if `kept`, and its columns `outs`, if `inside`."""
    at = row[:, None] * stride + outs[None, :]
    tl.store(out + at, values.to(out.dtype.element_ty), mask=kept[:, None] & inside[None, :])


@triton.jit
def one_of_int4(
    x_rows,
    kept,
    codes,
    scales,
    minima,
    first_out,
    rows,
    stride,
    first,
    last,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    if BLOCK_M == 1:
        sums = one_row(x_rows, codes, scales, minima, first_out, rows, stride, first, last, BLOCK_N, BLOCK_K)
    else:
        sums = quads_products(
            x_rows, kept, codes, scales, minima, first_out, rows, stride, first, last, BLOCK_M, BLOCK_N, BLOCK_K
        )
    return sums
