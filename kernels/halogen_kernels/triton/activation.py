"""The gate of a feed-forward whose two products were computed by themselves: act(gate) * up, in float32.

tanh(u) is 2 * sigmoid(2 u) - 1, so that gelu in its tanh approximation is x * sigmoid(2 u) with
u = sqrt(2 / pi) * (x + 0.044715 x^3) (Hendrycks and Gimpel, 2016).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton import tuning
from halogen_kernels.triton.hints import aligned, sixteens
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.values import Activation

OP = "activation"


@triton.jit
def activated(x, KIND: tl.constexpr):
    """silu or gelu_tanh of float32 values; for other kernels too."""
    if KIND == "silu":
        opening = x
    else:
        opening = 1.5957691216057308 * (x + 0.044715 * x * x * x)
    return x * tl.sigmoid(opening)


@triton.jit(do_not_specialize=["rows", "width", "gate_stride", "up_stride", "out_stride"])
def activation_kernel(
    gate,
    up,
    out,
    rows,
    width,
    gate_stride,
    up_stride,
    out_stride,
    KIND: tl.constexpr,
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < sixteens(width, ALIGNED))
    row = row.to(tl.int64)
    opened = tl.load(gate + row * sixteens(gate_stride, ALIGNED) + column, mask=inside, other=0.0).to(tl.float32)
    passed = tl.load(up + row * sixteens(up_stride, ALIGNED) + column, mask=inside, other=0.0).to(tl.float32)
    values = activated(opened, KIND) * passed
    tl.store(out + row * sixteens(out_stride, ALIGNED) + column, values.to(out.dtype.element_ty), mask=inside)


def activation(gate: Tensor, up: Tensor, kind: Activation) -> Tensor:
    """act(gate) * up of [n, f] each, whose rows may lie at any distance: [n, f] in their dtype."""
    out = torch.empty_like(gate, memory_format=torch.contiguous_format)
    rows, width = gate.shape
    strides = gate.stride(0), up.stride(0), out.stride(0)
    blocks = tuning.pick(OP)
    launch(
        activation_kernel,
        (triton.cdiv(rows, blocks["ROWS"]), triton.cdiv(width, blocks["BLOCK"])),
        gate,
        up,
        out,
        rows,
        width,
        *strides,
        KIND=kind,
        ALIGNED=aligned(width, *strides),
        **blocks,
    )
    return out


def rehearse(shapes: Shapes) -> None:
    for dtype in shapes.dtypes:
        for kind in shapes.activations:
            for width in (64, 65):
                gate = torch.empty(4, width, dtype=dtype, device="meta")
                activation(gate, gate, kind)
