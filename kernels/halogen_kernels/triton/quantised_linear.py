"""Linear maps with weights of one byte or half a byte a number, which are read as they are held.

Few rows of x are a matter of bandwidth: there are as many programs as keep the memory busy, over parts of the columns
where the rows of the matrix are too few for that, whose sums a second kernel adds up in order. Many rows are a matter
of arithmetic: larger tiles, each matrix's tile made wide once. Sums are in float32 either way, and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton import linear_cases, targets, tuning
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.matrix import STRIDE_UNIT, Matrix, imagined
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.triton.weight_tiles import products, put_rows

OP = "quantised_linear"
# Each part of the columns is read in so many steps at least, or starting a program takes longer than its work.
_LEAST_STEPS = 2
# Of a row of x, so many columns at least to a part: its sums are written and read again, 8 bytes a row of the matrix.
_LEAST_COLUMNS = 64
_ADDED_BLOCK = 1024
_REHEARSED_COLUMNS = 4096  # enough for parts


@triton.jit(do_not_specialize=["n", "rows", "stride", "x_stride", "out_stride", "part_columns", "has_bias"])
def linear_kernel(
    x,
    codes,
    scales,
    minima,
    bias,
    out,
    n,
    rows,
    stride,
    x_stride,
    out_stride,
    part_columns,
    has_bias,
    KIND: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """out [parts, n, rows]: part p has the columns from p * part_columns on."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    first_out = tl.program_id(1) * BLOCK_N
    part = tl.program_id(2)
    kept = row < n
    x_rows = x + row.to(tl.int64) * (x_stride // 16 * 16)
    first = part * part_columns // 16 * 16
    last = tl.minimum(first + part_columns, stride) // 16 * 16
    sums, _ = products(
        x_rows, kept, codes, scales, minima, codes, scales, minima,
        first_out, rows, stride // 16 * 16, first, last, KIND, False, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    outs = first_out + tl.arange(0, BLOCK_N)
    inside = outs < rows
    sums += tl.load(bias + outs, mask=inside & (has_bias != 0), other=0.0)[None, :]
    put_rows(out, sums, (part * n + row).to(tl.int64), kept, outs, inside, out_stride)


@triton.jit(do_not_specialize=["n", "rows", "out_stride", "parts", "has_bias"])
def add_parts_kernel(pieces, bias, out, n, rows, out_stride, parts, has_bias, BLOCK: tl.constexpr):
    """The sum of `pieces` [parts, n, rows] over its parts, in their order."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < rows
    total = tl.load(bias + column, mask=inside & (has_bias != 0), other=0.0)
    for part in range(parts):
        total += tl.load(pieces + (part * n + row) * rows + column, mask=inside, other=0.0)
    tl.store(out + row * out_stride + column, total.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The columns in `parts` of `columns` each, the last shorter."""

    parts: int
    columns: int


def quantised_linear(x: Tensor, matrix: Matrix, out: Tensor, bias: Tensor | None = None) -> None:
    """x @ W.T + bias into `out` [n, rows], which is in x's dtype or float32, its rows at any distance. x [n, columns]
    is bfloat16, float16 or float32, bias [rows] of any float type."""
    x = laid_out(x)
    wide_bias = None if bias is None else bias.float()
    blocks = dict(tuning.pick(OP, kind=matrix.format, rows=len(x)))
    programs = blocks.pop("programs", 1)
    cut = _cut(x, matrix, blocks, programs)
    if cut.parts == 1:
        _multiply(x, matrix, out, wide_bias, cut, blocks)
        return
    pieces = x.new_empty(cut.parts * len(x), matrix.rows, dtype=torch.float32)
    _multiply(x, matrix, pieces, None, cut, blocks)
    _add_parts(pieces, out, wide_bias, cut)


def laid_out(x: Tensor) -> Tensor:
    """`x` [n, columns] as kernels read it: with rows a multiple of 16 values apart, zeros past their columns."""
    columns = x.shape[1]
    if columns % STRIDE_UNIT:
        return F.pad(x, (0, -columns % STRIDE_UNIT))
    return x if x.stride(1) == 1 and x.stride(0) % STRIDE_UNIT == 0 else x.contiguous()


def _cut(x: Tensor, matrix: Matrix, blocks: dict[str, int], programs: int) -> _Cut:
    """Into so many parts that there are about as many programs as wanted."""
    step, n = blocks["BLOCK_K"], len(x)
    tiles = triton.cdiv(n, blocks["BLOCK_M"]) * triton.cdiv(matrix.rows, blocks["BLOCK_N"])
    most = matrix.stride // max(_LEAST_STEPS * step, _LEAST_COLUMNS * n)
    parts = max(1, min(programs // max(tiles, 1), most))
    columns = triton.cdiv(triton.cdiv(matrix.stride, parts), step) * step
    return _Cut(triton.cdiv(matrix.stride, columns), columns)


def _multiply(x: Tensor, matrix: Matrix, out: Tensor, bias: Tensor | None, cut: _Cut, blocks: dict[str, int]) -> None:
    n, rows = len(x), matrix.rows
    launch(
        linear_kernel,
        (triton.cdiv(n, blocks["BLOCK_M"]), triton.cdiv(rows, blocks["BLOCK_N"]), cut.parts),
        x,
        *matrix.planes,
        _or_any(bias, x),
        out,
        n,
        rows,
        matrix.stride,
        x.stride(0),
        out.stride(0),
        cut.columns,
        int(bias is not None),
        KIND=matrix.kind,
        **blocks,
    )


def _add_parts(pieces: Tensor, out: Tensor, bias: Tensor | None, cut: _Cut) -> None:
    launch(
        add_parts_kernel,
        (len(out), triton.cdiv(out.shape[1], _ADDED_BLOCK)),
        pieces,
        _or_any(bias, out),
        out,
        len(out),
        out.shape[1],
        out.stride(0),
        cut.parts,
        int(bias is not None),
        BLOCK=_ADDED_BLOCK,
        num_warps=4,
    )


def _or_any(bias: Tensor | None, like: Tensor) -> Tensor:
    """A kernel wants an address of float32 even where it reads nothing there."""
    return like.new_empty(1, dtype=torch.float32) if bias is None else bias


def rehearse(shapes: Shapes) -> None:
    for x, matrix in linear_cases.multiplied(OP, shapes, _REHEARSED_COLUMNS):
        if matrix.format != "plain":
            _rehearse_one(x, matrix)


def _rehearse_one(x: Tensor, matrix: Matrix) -> None:
    """With few rows of the matrix there are parts, with many there are none. Where code for AMD addresses a tensor in
    another way from 2 GiB on, there is an output matrix as large as that."""
    tall = imagined(matrix.format, 1 << 16, matrix.columns, x.dtype)
    for wanted in (x.dtype, torch.float32):
        quantised_linear(x, matrix, x.new_empty(len(x), matrix.rows, dtype=wanted))
        quantised_linear(x, tall, x.new_empty(len(x), tall.rows, dtype=wanted))
    if targets.current().backend == "hip" and matrix.format == "int8":  # which output matrices are in
        vast = imagined(matrix.format, 1 << 19, matrix.columns, x.dtype)
        quantised_linear(x, vast, x.new_empty(len(x), vast.rows, dtype=torch.float32))
