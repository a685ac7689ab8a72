"""Rotary positions as one complex product: a pair of neighbours is a complex number."""

from __future__ import annotations

import torch
from torch import Tensor

from halogen_kernels.cpu.norm import direction
from halogen_kernels.values import NormWeight


def rotate(heads: Tensor, turns: Tensor, norm: NormWeight | None) -> None:
    wide = heads.float() if norm is None else direction(heads, norm).mul_(norm.weight)
    pairs = wide.view(*wide.shape[:-1], -1, 2)
    turned = torch.view_as_complex(pairs) * turns
    heads.copy_(torch.view_as_real(turned).flatten(-2))


def write_kv(cache: Tensor, slots: Tensor, kv: Tensor) -> None:
    rows = cache.view(-1, kv.shape[1])
    rows.index_copy_(0, slots, kv.to(cache.dtype))
