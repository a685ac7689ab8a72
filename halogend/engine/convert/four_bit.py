"""Rows as codes of four bits with a scale and a minimum for each 32 columns, and in the tiles of g32-a4.v1."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogend.checkpoint.v2.layout import GROUP_COLUMNS

_HALF = GROUP_COLUMNS // 2
_MOST = 15


class Groups(NamedTuple):
    """value = scale * code + minimum. Codes uint8 [rows, groups, 32], scales and minima float16 [rows, groups]."""

    codes: Tensor
    scales: Tensor
    minima: Tensor


def checked(codes: Tensor, scales: Tensor, minima: Tensor) -> Groups:
    """With scales and minima (of any float dtype) rounded. Raises ValueError where they are beyond float16."""
    found = Groups(codes, scales.half(), minima.half())
    if not (found.scales.isfinite().all() and found.minima.isfinite().all()):
        raise ValueError("int4 needs weights that are finite and within float16, and some are not")
    return found


def quantise(rows: Tensor) -> Groups:
    """Of float32 [rows, columns], the columns whole groups. Raises ValueError for values beyond float16."""
    wide = rows.view(len(rows), -1, GROUP_COLUMNS)
    low, high = wide.aminmax(dim=2)
    blank = torch.empty(0, dtype=torch.uint8)
    _, scales, minima = checked(blank, (high - low) / _MOST, low)
    return Groups(_codes(wide, scales, minima), scales, minima)


def tiled(groups: Groups, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """The planes: codes uint8 [tiles, groups, 16, block], scales and minima float16 [tiles, groups, block]."""
    rows, count = groups.scales.shape
    missing = -rows % block
    pairs = groups.codes[:, :, :_HALF] | groups.codes[:, :, _HALF:] << 4
    codes = F.pad(pairs, (0, 0, 0, 0, 0, missing)).view(-1, block, count, _HALF).permute(0, 2, 3, 1)
    scales, minima = (
        F.pad(each, (0, 0, 0, missing)).view(-1, block, count).transpose(1, 2)
        for each in (groups.scales, groups.minima)
    )
    return codes, scales, minima


def _codes(wide: Tensor, scales: Tensor, minima: Tensor) -> Tensor:
    """The nearest with scales and minima as they are held; those of a group of equal values are 0."""
    steps = scales.float().masked_fill_(scales == 0, 1.0).unsqueeze(2)
    exact = (wide - minima.float().unsqueeze(2)).div_(steps)
    return exact.round_().clamp_(0, _MOST).to(torch.uint8)
