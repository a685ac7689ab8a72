"""RMSNorm in four small operators instead of seven.

x / sqrt(mean(x^2) + eps) * w  =  x / hypot(|x|, sqrt(h * eps)) * (sqrt(h) * w)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from halogen_kernels.values import NormWeight


def pack_norm(weight: Tensor, eps: float) -> NormWeight:
    width = weight.shape[-1]
    return NormWeight(weight.float() * math.sqrt(width), torch.tensor(math.sqrt(width * eps)))


def rms_norm(x: Tensor, norm: NormWeight, dtype: torch.dtype) -> Tensor:
    out = torch.empty(x.shape, dtype=dtype)
    return torch.mul(direction(x, norm), norm.weight, out=out)


def add_rms_norm(residual: Tensor, delta: Tensor, norm: NormWeight) -> None:
    residual.addcmul_(direction(delta, norm), norm.weight)


def direction(x: Tensor, norm: NormWeight) -> Tensor:
    """x over its length, in float32, the length held above the floor."""
    length: Tensor = torch.linalg.vector_norm(x, 2, -1, True, dtype=torch.float32)
    return torch.div(x, length.hypot_(norm.floor))
