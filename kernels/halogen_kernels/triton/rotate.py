"""Rotary positions in place, in one with the norm of heads that comes before (Su and others, 2021).

A program takes some heads, whichever rows they are of. Neighbouring values are a pair: they are loaded together and
parted in registers, so that memory is read and written in one piece.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton import tuning
from halogen_kernels.triton.hints import aligned, sixteens
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.shapes import Shapes, power_of_two
from halogen_kernels.values import NormWeight

OP = "rotate"


@triton.jit(do_not_specialize=["count", "heads_a_row", "row_stride", "turn_stride", "weight_stride"])
def rotate_kernel(
    heads,
    turns,
    weight,
    count,
    heads_a_row,
    row_stride,
    turn_stride,
    weight_stride,
    eps,
    HEAD_DIM: tl.constexpr,
    PADDED: tl.constexpr,
    NORMED: tl.constexpr,
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
):
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row, head = number // heads_a_row, number % heads_a_row
    column = tl.arange(0, PADDED)[None, :]
    inside = (number < count) & (column < HEAD_DIM)
    heads += row.to(tl.int64) * sixteens(row_stride, ALIGNED) + head * HEAD_DIM + column
    values = tl.load(heads, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        values *= tl.rsqrt(tl.sum(values * values, 1) / HEAD_DIM + eps)[:, None]
        values *= tl.load(weight + head * sixteens(weight_stride, ALIGNED) + column, mask=inside, other=0.0)
    turn = tl.load(turns + row.to(tl.int64) * sixteens(turn_stride, ALIGNED) + column, mask=inside, other=0.0)
    even, odd = tl.split(tl.reshape(values, [ROWS, PADDED // 2, 2]))
    real, imaginary = tl.split(tl.reshape(turn, [ROWS, PADDED // 2, 2]))
    turned = tl.join(even * real - odd * imaginary, even * imaginary + odd * real)
    tl.store(heads, tl.reshape(turned, [ROWS, PADDED]).to(heads.dtype.element_ty), mask=inside)


def rotate(heads: Tensor, turns: Tensor, norm: NormWeight | None) -> None:
    """See `seam.Rotate`. Rows of `heads` may lie at any distance, a row's heads behind each other: ValueError
    otherwise. `norm` has one row for all heads or one for each."""
    rows, heads_a_row, head_dim = heads.shape
    if heads.stride()[1:] != (head_dim, 1):
        raise ValueError(f"a row's heads of {head_dim} do not lie behind each other: strides {heads.stride()}")
    parts = torch.view_as_real(turns).flatten(1)
    weight = parts if norm is None else norm.weight
    weight_stride = weight.stride(0) if weight.dim() == 2 else 0
    blocks = tuning.pick(OP, head_dim=head_dim)
    launch(
        rotate_kernel,
        (triton.cdiv(rows * heads_a_row, blocks["ROWS"]),),
        heads,
        parts,
        weight,
        rows * heads_a_row,
        heads_a_row,
        heads.stride(0),
        parts.stride(0),
        weight_stride,
        0.0 if norm is None else float(norm.floor),
        HEAD_DIM=head_dim,
        PADDED=power_of_two(head_dim),
        NORMED=norm is not None,
        ALIGNED=aligned(head_dim, heads.stride(0), parts.stride(0), weight_stride),
        **blocks,
    )


def rehearse(shapes: Shapes) -> None:
    """Heads of each width, turned with and without a norm."""
    for head_dim in shapes.head_dims:
        turns = torch.empty(4, 1, head_dim // 2, dtype=torch.complex64, device="meta")
        norm = NormWeight(torch.empty(3, head_dim, device="meta"), torch.tensor(1e-6))
        for dtype in shapes.dtypes:
            heads = torch.empty(4, 3, head_dim, dtype=dtype, device="meta")
            for normed in shapes.norms:
                rotate(heads, turns, norm if normed else None)
