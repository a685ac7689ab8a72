"""The product of one row of x with int4 rows of a matrix: no tensor core has enough to do, and none is asked.

A thread has a quad of rows and a group of columns at a time: it multiplies what it reads, and its scales and minima
come in once a group. Sums are in float32, over groups thread by thread, and over threads once, at the end. Word by
word and value of x by value, loads have one shape, so that nothing goes through shared memory in between.
"""

from __future__ import annotations

import triton
import triton.language as tl

from halogen_kernels.triton.codes import GROUP, GROUP_WORDS, ONE_BITS, in_order, quad_planes, sixteenths


@triton.jit
def add_row(sums, words, one, low, high, BYTE: tl.constexpr):
    """`sums` of one row of each quad, and what its byte of each word adds."""
    sums += sixteenths(words, one, 8 * BYTE) * low
    return sums + sixteenths(words, one, 8 * BYTE + 4) * high


@triton.jit
def add_group(sums, part, total, scales, minima, inside):
    """`sums` and those of a group, of which `part` are those of 1 + code / 16, and `total` those of x alone."""
    scale = tl.load(scales, mask=inside, other=0.0).to(tl.float32)
    minimum = tl.load(minima, mask=inside, other=0.0).to(tl.float32)
    return sums + (part - total) * (scale * 16.0) + total * minimum


@triton.jit
def one_row(
    x_rows,
    codes,
    scales,
    minima,
    first_out,
    rows,
    stride,
    first,
    last,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """[1, BLOCK_N]"""
    QUADS: tl.constexpr = BLOCK_N // 4
    GROUPS: tl.constexpr = BLOCK_K // GROUP
    g = tl.arange(0, GROUPS)
    words, scale_at, there = quad_planes(codes, first_out, rows, stride, g * GROUP_WORDS, QUADS, GROUPS)
    x = x_rows[:, None] + ((g * GROUP)[:, None] + tl.zeros((1, QUADS), dtype=tl.int32))
    # A compiler that does not know that this is a constant keeps it in a register, and both bitwise operations with it
    # are one then.
    one = (tl.minimum(rows, 0) | ONE_BITS).to(tl.uint32)
    first_sums = tl.zeros((GROUPS, QUADS), dtype=tl.float32)
    second_sums = tl.zeros((GROUPS, QUADS), dtype=tl.float32)
    third_sums = tl.zeros((GROUPS, QUADS), dtype=tl.float32)
    fourth_sums = tl.zeros((GROUPS, QUADS), dtype=tl.float32)
    for start in range(first, last, BLOCK_K):
        inside = (start + g * GROUP < last)[:, None] & there[None, :]
        total = tl.zeros((GROUPS, QUADS), dtype=tl.float32)
        a = tl.zeros((GROUPS, QUADS), dtype=tl.float32)
        b = tl.zeros((GROUPS, QUADS), dtype=tl.float32)
        c = tl.zeros((GROUPS, QUADS), dtype=tl.float32)
        d = tl.zeros((GROUPS, QUADS), dtype=tl.float32)
        for j in tl.static_range(16):
            low = tl.load(x + start + j, mask=inside, other=0.0).to(tl.float32)
            high = tl.load(x + start + (j + 16), mask=inside, other=0.0).to(tl.float32)
            word = tl.load(words + start * 4 + j * 8, mask=inside, other=0)
            total += low + high
            a = add_row(a, word, one, low, high, 0)
            b = add_row(b, word, one, low, high, 1)
            c = add_row(c, word, one, low, high, 2)
            d = add_row(d, word, one, low, high, 3)
        scale_of, minimum_of = scales + scale_at + start, minima + scale_at + start
        first_sums = add_group(first_sums, a, total, scale_of, minimum_of, inside)
        second_sums = add_group(second_sums, b, total, scale_of + 1, minimum_of + 1, inside)
        third_sums = add_group(third_sums, c, total, scale_of + 2, minimum_of + 2, inside)
        fourth_sums = add_group(fourth_sums, d, total, scale_of + 3, minimum_of + 3, inside)
    return in_order(
        tl.sum(first_sums, 0)[None, :],
        tl.sum(second_sums, 0)[None, :],
        tl.sum(third_sums, 0)[None, :],
        tl.sum(fourth_sums, 0)[None, :],
        1,
        BLOCK_N,
    )
