"""RMSNorm, alone and in one with the addition before or after it: as much as a layer's norms need to read.

    rms_norm       out = norm(x)
    add_rms_norm   residual += norm(delta)
    norm_of_sum    residual += delta, or norm(delta) if a second norm is given; then out = norm(residual)

A program takes whole rows. Rows that a block holds are read once; wider ones are read twice, the second time out
of the cache. Sums are in float32 (Zhang and Sennrich, 2019).
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
from halogen_kernels.values import NormWeight

OP = "rms_norm"


@triton.jit(do_not_specialize=["rows", "width", "x_stride", "out_stride"])
def rms_norm_kernel(
    x,
    weight,
    out,
    rows,
    width,
    x_stride,
    out_stride,
    eps,
    ADDS: tl.constexpr,  # adds to what `out` holds
    WHOLE: tl.constexpr,  # a row fits into BLOCK
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    width = sixteens(width, ALIGNED)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    x += row.to(tl.int64) * sixteens(x_stride, ALIGNED)
    out += row.to(tl.int64) * sixteens(out_stride, ALIGNED)
    column = tl.arange(0, BLOCK)[None, :]
    if WHOLE:
        inside = (row < rows) & (column < width)
        values = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(values * values, 1) / width + eps)[:, None]
        _store(out + column, values * scale, weight + column, inside, column < width, ADDS)
    else:
        squares = tl.zeros([ROWS, BLOCK], tl.float32)
        for first in range(0, width, BLOCK):
            inside = (row < rows) & (first + column < width)
            values = tl.load(x + first + column, mask=inside, other=0.0).to(tl.float32)
            squares += values * values
        scale = tl.rsqrt(tl.sum(squares, 1) / width + eps)[:, None]
        for first in range(0, width, BLOCK):
            at = first + column
            inside = (row < rows) & (at < width)
            values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            _store(out + at, values * scale, weight + at, inside, at < width, ADDS)


@triton.jit
def _store(out, values, weight, inside, in_width, ADDS: tl.constexpr):
    values *= tl.load(weight, mask=in_width, other=0.0)
    if ADDS:
        values += tl.load(out, mask=inside, other=0.0).to(tl.float32)
    tl.store(out, values.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "width", "residual_stride", "delta_stride", "out_stride"])
def norm_of_sum_kernel(
    residual,
    delta,
    inner,
    weight,
    out,
    rows,
    width,
    residual_stride,
    delta_stride,
    out_stride,
    inner_eps,
    eps,
    NORMED: tl.constexpr,  # the delta, by `inner`, before it is added
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    width = sixteens(width, ALIGNED)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    residual += row.to(tl.int64) * sixteens(residual_stride, ALIGNED) + column
    delta += row.to(tl.int64) * sixteens(delta_stride, ALIGNED) + column
    out += row.to(tl.int64) * sixteens(out_stride, ALIGNED) + column
    values = tl.load(delta, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        values *= tl.rsqrt(tl.sum(values * values, 1) / width + inner_eps)[:, None]
        values *= tl.load(inner + column, mask=column < width, other=0.0)
    values += tl.load(residual, mask=inside, other=0.0)
    tl.store(residual, values, mask=inside)
    values *= tl.rsqrt(tl.sum(values * values, 1) / width + eps)[:, None]
    values *= tl.load(weight + column, mask=column < width, other=0.0)
    tl.store(out, values.to(out.dtype.element_ty), mask=inside)


def pack_norm(weight: Tensor, eps: float, device: torch.device | None = None) -> NormWeight:
    """See `seam.PackNorm`. The weight goes to `device`; eps stays on the host, where launches read it."""
    return NormWeight(weight.to(device, torch.float32, copy=True), torch.tensor(eps, dtype=torch.float64))


def rms_norm(x: Tensor, norm: NormWeight, dtype: torch.dtype) -> Tensor:
    """See `seam.RmsNorm`; `x` is [n, h], its rows at any distance from each other."""
    out = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    _normalise(x, norm, out, adds=False)
    return out


def add_rms_norm(residual: Tensor, delta: Tensor, norm: NormWeight) -> None:
    """See `seam.AddRmsNorm`."""
    _normalise(delta, norm, residual, adds=True)


def norm_of_sum(
    residual: Tensor, delta: Tensor, norm: NormWeight, dtype: torch.dtype, inner: NormWeight | None = None
) -> Tensor:
    """Adds `delta` [n, h], normalised by `inner` if that is given, to `residual` [n, h] float32 in place, and returns
    the sum normalised by `norm`, in `dtype`."""
    rows, width = residual.shape
    out = torch.empty_like(residual, dtype=dtype, memory_format=torch.contiguous_format)
    strides = residual.stride(0), delta.stride(0), out.stride(0)
    even = aligned(width, *strides)
    blocks = tuning.pick(OP, width=width, aligned=even)
    if width > blocks["BLOCK"]:
        if inner is None:
            residual.add_(delta)
        else:
            add_rms_norm(residual, delta, inner)
        _normalise(residual, norm, out, adds=False)
        return out
    launch(
        norm_of_sum_kernel,
        (triton.cdiv(rows, blocks["ROWS"]),),
        residual,
        delta,
        norm.weight if inner is None else inner.weight,
        norm.weight,
        out,
        rows,
        width,
        *strides,
        0.0 if inner is None else float(inner.floor),
        float(norm.floor),
        NORMED=inner is not None,
        ALIGNED=even,
        **blocks,
    )
    return out


def _normalise(x: Tensor, norm: NormWeight, out: Tensor, *, adds: bool) -> None:
    rows, width = x.shape
    even = aligned(width, x.stride(0), out.stride(0))
    blocks = tuning.pick(OP, width=width, aligned=even)
    launch(
        rms_norm_kernel,
        (triton.cdiv(rows, blocks["ROWS"]),),
        x,
        norm.weight,
        out,
        rows,
        width,
        x.stride(0),
        out.stride(0),
        float(norm.floor),
        ADDS=adds,
        WHOLE=width <= blocks["BLOCK"],
        ALIGNED=even,
        **blocks,
    )


def rehearse(shapes: Shapes) -> None:
    """Norms a float32 residual, and a delta in the compute dtype, of widths of every class."""
    classes = tuning.representatives(OP, "width")
    for width in (*(triton.cdiv(least, 16) * 16 for least in classes), *(least // 2 * 2 + 1 for least in classes)):
        norm = NormWeight(torch.empty(width, device="meta"), torch.tensor(1e-6))
        residual = torch.empty(4, width, device="meta")
        for dtype in shapes.dtypes:
            delta = residual.to(dtype)
            rms_norm(residual, norm, dtype)
            add_rms_norm(residual, delta, norm)
            norm_of_sum(residual, delta, norm, dtype)
            norm_of_sum(residual, delta, norm, dtype, norm)
