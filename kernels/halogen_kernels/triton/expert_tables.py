"""Where the matrices of a mixture's experts lie: each is an allocation of its own, found by its address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton.matrix import Matrix, matrix_of
from halogen_kernels.values import ExpertWeights, LinearWeight


@triton.jit
def codes_of(addresses, expert, experts, plane, like, KIND: tl.constexpr):
    """Where the codes of an expert begin: its entry of row `plane` of a table."""
    address = tl.load(addresses + plane * experts + expert)
    if KIND == "plain":
        found = address.to(tl.pointer_type(like.dtype.element_ty))
    elif KIND == "int8":
        found = address.to(tl.pointer_type(tl.int8))
    else:
        found = address.to(tl.pointer_type(tl.uint8))
    return tl.multiple_of(found, 16)


@triton.jit
def scales_of(addresses, expert, experts, plane, KIND: tl.constexpr):
    """Likewise its scales or minima; of a kind without any, what must not be read."""
    address = tl.load(addresses + plane * experts + expert)
    if KIND == "int4":
        found = address.to(tl.pointer_type(tl.float16))
    else:
        found = address.to(tl.pointer_type(tl.float32))
    return tl.multiple_of(found, 16)


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """One mixture's experts as the kernels find them. `gated` int64 [6, E]: addresses of the gates' codes, scales and
    minima, then of the ups'; `down` int64 [3, E]. `gate` and `last` are matrices like all gates, and all downs."""

    gated: Tensor
    down: Tensor
    gate: Matrix
    last: Matrix
    count: int

    @classmethod
    def of(cls, experts: ExpertWeights) -> Tables:
        """Raises ValueError for experts that are not all alike."""
        gates, ups, downs = _alike(experts.gate), _alike(experts.up), _alike(experts.down)
        device = gates[0].codes.device
        gated = torch.tensor(_addresses(gates) + _addresses(ups), dtype=torch.int64, device=device)
        down = torch.tensor(_addresses(downs), dtype=torch.int64, device=device)
        return cls(gated, down, gates[0], downs[0], len(gates))


def _alike(weights: Sequence[LinearWeight]) -> list[Matrix]:
    matrices = [matrix_of(weight) for weight in weights]
    kinds = {(matrix.format, matrix.codes.dtype, matrix.rows, matrix.columns) for matrix in matrices}
    if len(kinds) != 1:
        raise ValueError(f"experts' matrices must be alike, and there are {len(kinds)} kinds or sizes")
    return matrices


def _addresses(matrices: Sequence[Matrix]) -> list[list[int]]:
    return [[matrix.planes[plane].data_ptr() for matrix in matrices] for plane in range(3)]
