"""The first half of a gated feed-forward, act(gate x) * (up x), in one kernel: x is read once, and neither product is
written. Both sums are in float32, and rounded once, at the end.

Of plain weights and many rows, the library's two products and `activation` are used instead.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton import linear_cases, tuning
from halogen_kernels.triton.activation import activated, activation
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.matrix import Matrix
from halogen_kernels.triton.quantised_linear import laid_out
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.triton.weight_tiles import products, put_rows
from halogen_kernels.values import Activation

OP = "gated_linear"
# From here on, a library's product of plain weights has enough to do to be better.
PLAIN_ROWS = 16


@triton.jit(do_not_specialize=["n", "rows", "stride", "x_stride", "out_stride"])
def gated_kernel(
    x,
    codes,
    scales,
    minima,
    up_codes,
    up_scales,
    up_minima,
    out,
    n,
    rows,
    stride,
    x_stride,
    out_stride,
    KIND: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    first_out = tl.program_id(1) * BLOCK_N
    kept = row < n
    row = row.to(tl.int64)
    opened, passed = products(
        x + row * (x_stride // 16 * 16), kept, codes, scales, minima, up_codes, up_scales, up_minima,
        first_out, rows, stride // 16 * 16, 0, stride // 16 * 16, KIND, True, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    outs = first_out + tl.arange(0, BLOCK_N)
    values = activated(opened, ACTIVATION) * passed
    put_rows(out, values, row, kept, outs, outs < rows, out_stride)


def gated_linear(x: Tensor, gate: Matrix, up: Matrix, kind: Activation) -> Tensor:
    """act(x @ gate.T) * (x @ up.T): [n, columns] -> [n, rows], in x's dtype."""
    if gate.format == "plain" and len(x) > PLAIN_ROWS:
        return activation(F.linear(x, gate.numbers), F.linear(x, up.numbers), kind)
    x = laid_out(x)
    out = x.new_empty(len(x), gate.rows)
    blocks = tuning.pick(OP, kind=gate.format, rows=len(x))
    launch(
        gated_kernel,
        (triton.cdiv(len(x), blocks["BLOCK_M"]), triton.cdiv(gate.rows, blocks["BLOCK_N"])),
        x,
        *gate.planes,
        *up.planes,
        out,
        len(x),
        gate.rows,
        gate.stride,
        x.stride(0),
        out.stride(0),
        KIND=gate.kind,
        ACTIVATION=kind,
        **blocks,
    )
    return out


def rehearse(shapes: Shapes) -> None:
    for x, matrix in linear_cases.multiplied(OP, shapes, linear_cases.ROWS):
        for kind in shapes.activations:
            gated_linear(x, matrix, matrix, kind)
