"""Every operator in plain torch, written to be read: the definition that other backends must meet.

Works in any dtype. Intermediate values are float32, or float64 for float64 input: tests run it in
float64 to judge the others. Each row and each sequence is computed by itself, so that a row's
arithmetic does not depend on the other rows of the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogen_kernels.seam import GatedLinear, Kernels, Linear, Mixture
from halogen_kernels.values import (
    Activation,
    AttentionShape,
    ExpertWeights,
    LinearWeight,
    NormWeight,
    Span,
    Workspace,
)


def wide_of(dtype: torch.dtype) -> torch.dtype:
    """What intermediate values are in."""
    return torch.promote_types(dtype, torch.float32)


def pack_linear(slices: Iterable[Tensor]) -> LinearWeight:
    parts = tuple(part.clone() for part in slices)
    rows, columns = sum(len(part) for part in parts), parts[0].shape[1]
    return LinearWeight(parts, rows, columns, parts[0].dtype, sum(part.nbytes for part in parts))


def linear(x: Tensor, weight: LinearWeight, bias: Tensor | None = None) -> Tensor:
    product = torch.cat([F.linear(x, part) for part in weight.parts], dim=-1)
    return product if bias is None else (product.to(wide_of(x.dtype)) + bias).to(x.dtype)


def logits(x: Tensor, weight: LinearWeight, out: Tensor) -> None:
    out.copy_(linear(x, weight))


def activate(x: Tensor, activation: Activation) -> Tensor:
    """The gate's non-linearity; gelu in its tanh approximation (Hendrycks and Gimpel, 2016)."""
    return F.silu(x) if activation == "silu" else F.gelu(x, approximate="tanh")


def gated_linear(x: Tensor, gate: LinearWeight, up: LinearWeight, activation: Activation) -> Tensor:
    opened = activate(linear(x, gate).to(wide_of(x.dtype)), activation)
    return (opened * linear(x, up)).to(x.dtype)


def make_mixture(linear: Linear, gated_linear: GatedLinear) -> Mixture:
    """A mixture of experts out of these products: row by row, expert by expert (Shazeer and others, 2017)."""

    def mixture(x: Tensor, chosen: Tensor, shares: Tensor, experts: ExpertWeights, activation: Activation) -> Tensor:
        check_choices(chosen, len(experts.gate))
        out = torch.zeros(x.shape, dtype=wide_of(x.dtype))
        for row in range(len(x)):
            for number, share in zip(chosen[row].tolist(), shares[row], strict=True):
                inner = gated_linear(x[row : row + 1], experts.gate[number], experts.up[number], activation)
                out[row] += linear(inner, experts.down[number])[0].to(out.dtype) * share
        return out.to(x.dtype)

    return mixture


def check_choices(chosen: Tensor, count: int) -> None:
    """Raises ValueError for a number that none of `count` experts has."""
    low, high = (int(end) for end in chosen.aminmax())
    if low < 0 or high >= count:
        raise ValueError(f"experts {low} to {high} were chosen, and there are 0 to {count - 1}")


def pack_norm(weight: Tensor, eps: float) -> NormWeight:
    return NormWeight(weight.clone(), torch.tensor(eps, dtype=weight.dtype))


def rms_norm(x: Tensor, norm: NormWeight, dtype: torch.dtype) -> Tensor:
    """Zhang and Sennrich, 2019."""
    wide = x.to(wide_of(x.dtype))
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + norm.floor)
    return (wide * scale * norm.weight).to(dtype)


def add_rms_norm(residual: Tensor, delta: Tensor, norm: NormWeight) -> None:
    residual += rms_norm(delta, norm, residual.dtype)


def rotate(heads: Tensor, turns: Tensor, norm: NormWeight | None) -> None:
    """Su and others, 2021, with neighbouring values as pairs."""
    wide = heads.to(wide_of(heads.dtype))
    if norm is not None:
        wide = rms_norm(wide, norm, wide.dtype)
    even, odd = wide[..., 0::2], wide[..., 1::2]
    turned = torch.stack((even * turns.real - odd * turns.imag, even * turns.imag + odd * turns.real), dim=-1)
    heads.copy_(turned.flatten(-2))


def write_kv(cache: Tensor, slots: Tensor, kv: Tensor) -> None:
    cache.view(-1, kv.shape[1])[slots] = kv.to(cache.dtype)


@dataclass(frozen=True, slots=True)
class ExplicitPlan:
    shape: AttentionShape
    spans: tuple[Span, ...]
    window: int | None


def plan_attention(
    shape: AttentionShape, spans: Sequence[Span], window: int | None, dtype: torch.dtype, workspace: Workspace
) -> ExplicitPlan:
    del dtype, workspace  # everything is computed anew
    return ExplicitPlan(shape, tuple(spans), window)


def attend(queries: Tensor, cache: Tensor, plan: ExplicitPlan) -> Tensor:
    """softmax(softcap(Q K^T * scale)) V, sequence by sequence, with scores written out."""
    shape = plan.shape
    out = torch.empty(len(queries), shape.heads, shape.head_dim, dtype=cache.dtype)
    for span in plan.spans:
        first = 0 if plan.window is None else max(0, span.start - plan.window + 1)
        keys, values = _context(cache, span, first, shape)
        rows = slice(span.row, span.row + span.count)
        q = queries[rows].to(keys.dtype).transpose(0, 1)
        scores = q @ keys.transpose(1, 2) * shape.scale
        if shape.softcap:
            scores = shape.softcap * torch.tanh(scores / shape.softcap)
        scores.masked_fill_(~visible(span, first, plan.window), float("-inf"))
        out[rows] = (scores.softmax(-1) @ values).transpose(0, 1).to(cache.dtype)
    return out.flatten(1)


def visible(span: Span, first: int, window: int | None) -> Tensor:
    """Bool [count, end - first]: which keys from position `first` on each row sees."""
    rows = torch.arange(span.start, span.end).unsqueeze(1)
    keys = torch.arange(first, span.end)
    seen = keys <= rows
    return seen if window is None else seen & (keys > rows - window)


def _context(cache: Tensor, span: Span, first: int, shape: AttentionShape) -> tuple[Tensor, Tensor]:
    """K and V of positions `first` up to the span's end, each [H, positions, d]."""
    positions = torch.arange(first, span.end)
    blocks = torch.tensor(span.blocks)[positions // shape.block_tokens]
    slots = blocks * shape.block_tokens + positions % shape.block_tokens
    kv = cache.view(-1, 2, shape.kv_heads, shape.head_dim)[slots].to(wide_of(cache.dtype))
    keys, values = kv.permute(1, 2, 0, 3).repeat_interleave(shape.group, dim=1)
    return keys, values


def table() -> Kernels:
    return Kernels(
        pack_linear=pack_linear,
        linear=linear,
        logits=logits,
        gated_linear=gated_linear,
        mixture=make_mixture(linear, gated_linear),
        pack_norm=pack_norm,
        rms_norm=rms_norm,
        add_rms_norm=add_rms_norm,
        rotate=rotate,
        write_kv=write_kv,
        plan_attention=plan_attention,
        attend=attend,
        names={
            "linear": "reference",
            "gated_linear": "reference",
            "mixture": "reference",
            "rms_norm": "reference",
            "rotate": "reference",
            "write_kv": "reference",
            "attention_prefill": "reference.softmax",
            "attention_decode": "reference.softmax",
        },
    )
