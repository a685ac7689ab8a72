"""Linear maps: oneDNN over weights it has packed, or torch's own where it cannot.

Packing pays because torch's plain bfloat16 product repacks the matrix at every call: over the packed
form a product of few rows takes a third of the time or less.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogen_kernels import reference
from halogen_kernels.seam import Activation, LinearWeight

_ROWS_HINT = 16  # the layout oneDNN picks is the same from 1 to 512 rows; it wants a number
_POST_OPS = {"silu": ("swish", ""), "gelu_tanh": ("gelu", "tanh")}


def can_pack(dtype: torch.dtype) -> bool:
    """Whether this build and CPU run packed products in `dtype`."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001 (torch has no public name for it)
    return dtype == torch.float32


def pack_linear(slices: Iterable[Tensor]) -> LinearWeight:
    rows, columns, dtype = 0, 0, torch.float32
    parts = []
    for part in slices:
        rows, columns, dtype = rows + len(part), part.shape[1], part.dtype
        parts.append(_pack(part) if can_pack(dtype) else part.clone())
    return LinearWeight(tuple(parts), rows, columns, dtype)


def linear(x: Tensor, weight: LinearWeight) -> Tensor:
    if len(weight.parts) == 1:
        return _product(x, weight.parts[0])
    return torch.cat([_product(x, part) for part in weight.parts], dim=-1)


def logits(x: Tensor, weight: LinearWeight) -> Tensor:
    out = torch.empty(len(x), weight.rows)
    done = 0
    for part in weight.parts:
        piece = _product(x, part)
        out[:, done : done + piece.shape[1]] = piece
        done += piece.shape[1]
    return out


def gated_linear(x: Tensor, gate: LinearWeight, up: LinearWeight, activation: Activation) -> Tensor:
    """The activation and the product run on the accumulators, before they are rounded."""
    if len(gate.parts) > 1 or len(up.parts) > 1 or not gate.parts[0].is_mkldnn:
        opened = reference.activate(linear(x, gate), activation)
        return opened.mul_(linear(x, up))
    kind, algorithm = _POST_OPS[activation]
    fused = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001 (oneDNN's fused products have no public name)
    opened = fused(x, gate.parts[0], None, kind, [], algorithm)
    return fused.binary(x, opened, up.parts[0], None, "mul")


def _pack(part: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(part, _ROWS_HINT)  # noqa: SLF001 (as above)


def _product(x: Tensor, part: Tensor) -> Tensor:
    if part.is_mkldnn:
        return torch.ops.mkldnn._linear_pointwise(x, part, None, "none", [], "")  # noqa: SLF001 (as above)
    return F.linear(x, part)
