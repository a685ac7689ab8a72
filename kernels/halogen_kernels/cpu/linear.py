"""Linear maps: oneDNN over weights it has packed, or torch's own where it cannot.

Packing pays because torch's plain bfloat16 product repacks the matrix at every call: over the packed
form a product of few rows takes a third of the time or less. On a processor without bfloat16 torch's plain product
goes through the matrix again for every row: from four rows on widening it piece by piece is faster, at 64 rows five
to eight times.
"""

# ruff: noqa: SLF001 (torch has no public names for oneDNN's packed products)

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogen_kernels import reference
from halogen_kernels.cpu.row_sizes import padded
from halogen_kernels.quantise import rows_at_once
from halogen_kernels.values import Activation, LinearWeight

_mkldnn = torch.ops.mkldnn

# oneDNN's product of one to three rows waits for its own results: with a large matrix four rows take
# less time than one.
_LEAST_ROWS = 4
# Over more columns than this, one row alone is summed in another order than two and more are.
_SPLIT_COLUMNS = 1024
_ROWS_HINT = 16  # the layout oneDNN picks is the same from 1 to 512 rows; it wants a number
# Of fewer rows torch's plain bfloat16 product reads the matrix faster than it can be widened.
_WIDE_ROWS = 4
_POST_OPS = {"silu": ("swish", ""), "gelu_tanh": ("gelu", "tanh")}


def can_pack(dtype: torch.dtype) -> bool:
    """Whether this build and CPU run packed products in `dtype`."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return False
    if dtype == torch.bfloat16:
        return bool(_mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def pack_linear(slices: Iterable[Tensor]) -> LinearWeight:
    rows, columns, dtype = 0, 0, torch.float32
    parts = []
    for part in slices:
        rows, columns, dtype = rows + len(part), part.shape[1], part.dtype
        parts.append(_pack(part) if can_pack(dtype) else part.clone())
    return LinearWeight(tuple(parts), rows, columns, dtype, sum(_held_bytes(part) for part in parts))


def linear(x: Tensor, weight: LinearWeight, bias: Tensor | None = None) -> Tensor:
    rows = x.shape[0]
    x = _sized(x, weight)
    if len(weight.parts) == 1:
        return _first(_product(x, weight.parts[0], bias), rows)
    sizes = [part.shape[0] for part in weight.parts]
    biases = [None] * len(sizes) if bias is None else torch.split(bias, sizes)
    products = [_first(_product(x, part, piece), rows) for part, piece in zip(weight.parts, biases, strict=True)]
    return torch.cat(products, dim=-1)


def logits(x: Tensor, weight: LinearWeight, out: Tensor) -> None:
    done, rows = 0, x.shape[0]
    if weight.parts[0].is_mkldnn:
        x = _repeated(x) if rows < _LEAST_ROWS else padded(x, _values(weight))
    for part in weight.parts:
        piece = _product(x, part)[:rows]
        out[:, done : done + piece.shape[1]] = piece
        done += piece.shape[1]


def gated_linear(x: Tensor, gate: LinearWeight, up: LinearWeight, activation: Activation) -> Tensor:
    rows = x.shape[0]
    x = _sized(x, gate)
    pairs = zip(gate.parts, up.parts, strict=True)
    done = [_first(_gated_product(x, gate_part, up_part, activation), rows) for gate_part, up_part in pairs]
    return done[0] if len(done) == 1 else torch.cat(done, dim=-1)


def _gated_product(x: Tensor, gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    if not gate.is_mkldnn:
        return reference.activate(_product(x, gate), activation).mul_(_product(x, up))
    # Activation and product run on the accumulators, before they are rounded.
    kind, algorithm = _POST_OPS[activation]
    opened = _mkldnn._linear_pointwise(x, gate, None, kind, [], algorithm)
    product: Tensor = _mkldnn._linear_pointwise.binary(x, opened, up, None, "mul")
    return product


def _values(weight: LinearWeight) -> int:
    return weight.rows * weight.columns


def _sized(x: Tensor, weight: LinearWeight) -> Tensor:
    """`x` with the rows that its product runs with; those of `x` are the first ones."""
    if not weight.parts[0].is_mkldnn:
        return x
    if x.shape[0] == 1 and x.shape[1] > _SPLIT_COLUMNS:
        return _repeated(x)
    return padded(x, _values(weight))


def _repeated(x: Tensor) -> Tensor:
    """Rows of `x` again and again, at least _LEAST_ROWS."""
    return x.repeat(-(-_LEAST_ROWS // x.shape[0]), 1)


def _first(product: Tensor, rows: int) -> Tensor:
    """The first rows; a slice of all of them would cost as much as a small operator."""
    return product if product.shape[0] == rows else product[:rows]


def _pack(part: Tensor) -> Tensor:
    packed: Tensor = _mkldnn._reorder_linear_weight(part, _ROWS_HINT)
    return packed


def _held_bytes(part: Tensor) -> int:
    """oneDNN pads rows and columns to its blocks."""
    return int(_mkldnn._nbytes(part)) if part.is_mkldnn else part.nbytes


def _product(x: Tensor, part: Tensor, bias: Tensor | None = None) -> Tensor:
    if part.is_mkldnn:
        bias = None if bias is None else bias.float()  # added to the accumulators
        product: Tensor = _mkldnn._linear_pointwise(x, part, bias, "none", [], "")
        return product
    if bias is None and (len(x) < _WIDE_ROWS or x.dtype != torch.bfloat16):
        return F.linear(x, part)
    product = _widened(x, part)
    return (product if bias is None else product.add_(bias)).to(x.dtype)


def _widened(x: Tensor, part: Tensor) -> Tensor:
    """In float32, [n, rows of the part]."""
    wide, out = x.float(), torch.empty(len(x), len(part))
    step = rows_at_once(part.shape[1])
    matrix = torch.empty(min(step, len(part)), part.shape[1])
    for first in range(0, len(part), step):
        rows = part[first : first + step]
        out[:, first : first + len(rows)] = wide @ matrix[: len(rows)].copy_(rows).t()
    return out
