"""Rows as codes of four bits with a scale and a minimum for each 32 columns, and in the tiles of g32-a4.v1."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogend.checkpoint.v2.layout import GROUP_COLUMNS

_HALF = GROUP_COLUMNS // 2
_MOST = 15
_ROUNDS = 3


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


def quantise(rows: Tensor, importance: Tensor | None = None) -> Groups:
    """Of float32 [rows, columns], the columns whole groups. Raises ValueError for values beyond float16.

    From codes over a group's whole range, scale and minimum are fitted to the codes by least squares and the codes
    to them, a few times; each group takes the round that is nearest to its values. Columns count by their
    `importance`, float32 [columns] above 0: the mean square of what they are multiplied with, as far as is known.
    """
    wide = rows.view(len(rows), -1, GROUP_COLUMNS)
    share = torch.ones(wide.shape[1:]) if importance is None else importance.view(wide.shape[1:])
    share = share / share.sum(1, keepdim=True)
    low, high = wide.aminmax(dim=2)
    best = _rounded(wide, (high - low) / _MOST, low)
    error = _error(wide, best, share)
    found = best
    for _ in range(_ROUNDS):
        found = _rounded(wide, *_fitted(wide, found, share))
        nearer = (now := _error(wide, found, share)) < error
        error = torch.where(nearer, now, error)
        best = Groups(
            torch.where(nearer.unsqueeze(2), found.codes, best.codes),
            torch.where(nearer, found.scales, best.scales),
            torch.where(nearer, found.minima, best.minima),
        )
    return best


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


def _rounded(wide: Tensor, scales: Tensor, minima: Tensor) -> Groups:
    """The nearest codes with scales and minima as they are held; those of a group of equal values are 0."""
    _, scales, minima = checked(torch.empty(0, dtype=torch.uint8), scales, minima)
    steps = scales.float().masked_fill_(scales == 0, 1.0).unsqueeze(2)
    exact = (wide - minima.float().unsqueeze(2)).div_(steps)
    return Groups(exact.round_().clamp_(0, _MOST).to(torch.uint8), scales, minima)


def _fitted(wide: Tensor, groups: Groups, share: Tensor) -> tuple[Tensor, Tensor]:
    """The scale and the minimum with which these codes are nearest to the values, in the least squares."""
    codes = groups.codes.float()
    mean, centre = ((each * share).sum(2, keepdim=True) for each in (codes, wide))
    codes = codes.sub_(mean)
    spread = (codes.square() * share).sum(2)
    both = (codes * (wide - centre)).mul_(share).sum(2)
    scales = torch.where(spread > 0, both / spread.clamp(min=1e-9), groups.scales.float())
    return scales, centre.squeeze(2) - scales * mean.squeeze(2)


def _error(wide: Tensor, groups: Groups, share: Tensor) -> Tensor:
    """Squared, [rows, groups]."""
    values = groups.codes.float().mul_(groups.scales.float().unsqueeze(2)).add_(groups.minima.float().unsqueeze(2))
    return values.sub_(wide).square_().mul_(share).sum(2)
