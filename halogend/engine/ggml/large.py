"""GGML's types with blocks of 256 elements: groups whose small scales are multiples of the block's.

Source of the layouts: ggml's block definitions (`ggml-common.h`). Products of scales are taken apart
exactly as there, since their rounding is part of the result.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.engine.ggml.bits import Scaled, halves, look_up, planes
from halogend.engine.ggml.small import IQ4_VALUES, nibble_values, nibbles_as

_IQ4 = nibble_values(IQ4_VALUES)
# Multiplied by 3 a fraction of 256 gives its digit as the whole part; what is left is the next fraction.
_DIGITS = [(torch.arange(256) * 3**place % 256 * 3 // 256 - 1).to(torch.int8) for place in range(5)]


def q2_k(blocks: Tensor) -> Scaled:
    """Sixteen groups of 16; a byte holds a group's scale and minimum."""
    small = blocks[:, :16, None]
    codes = planes(blocks[:, 16:80].reshape(-1, 2, 32), 2).view(-1, 16, 16)
    scales = (small & 15).float().mul_(halves(blocks, 80))
    return Scaled(codes, scales, (small >> 4).float().mul_(-halves(blocks, 82)))


def q3_k(blocks: Tensor) -> Scaled:
    """Sixteen groups of 16; a clear high bit stands for -4."""
    codes = planes(blocks[:, 32:96].reshape(-1, 2, 32), 2).view(-1, 8, 32)
    codes.bitwise_or_(planes(blocks[:, :32], 1, at=2))
    low = planes(blocks[:, 96:104], 4).view(-1, 16)
    high = planes(blocks[:, 104:108], 2, at=4).view(-1, 16)
    scales = ((low | high).view(torch.int8) - 32).float().unsqueeze(-1)
    return Scaled(codes.view(torch.int8).sub_(4).view(-1, 16, 16), scales.mul_(halves(blocks, 108)))


def q4_k(blocks: Tensor) -> Scaled:
    """Eight groups of 32."""
    codes = planes(blocks[:, 16:144].reshape(-1, 4, 32), 4).view(-1, 8, 32)
    return Scaled(codes, *_scales_and_minima(blocks))


def q5_k(blocks: Tensor) -> Scaled:
    """Eight groups of 32; the fifth bits are in 32 bytes, a bit for each group."""
    codes = planes(blocks[:, 48:176].reshape(-1, 4, 32), 4).view(-1, 8, 32)
    codes.bitwise_or_(planes(blocks[:, 16:48], 1, at=4))
    return Scaled(codes, *_scales_and_minima(blocks))


def _scales_and_minima(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and minima of six bits, packed into 12 bytes, times the block's two."""
    first, second, rest = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    scales = torch.cat((first & 63, (rest & 15) | ((first >> 2) & 48)), dim=1).float().unsqueeze(-1)
    minima = torch.cat((second & 63, (rest >> 4) | ((second >> 2) & 48)), dim=1).float().unsqueeze(-1)
    return scales.mul_(halves(blocks, 0)), minima.mul_(-halves(blocks, 2))


def q6_k(blocks: Tensor) -> Scaled:
    """Sixteen groups of 16; codes are 4 low bits from one array and 2 high bits from another."""
    low = planes(blocks[:, :128].reshape(-1, 2, 64), 4).view(-1, 8, 32)
    high = planes(blocks[:, 128:192].reshape(-1, 2, 32), 2, at=4).view(-1, 8, 32)
    codes = low.bitwise_or_(high).view(torch.int8).sub_(32)
    scales = blocks[:, 192:208, None].view(torch.int8).float()
    return Scaled(codes.view(-1, 16, 16), scales.mul_(halves(blocks, 208)))


def iq4_xs(blocks: Tensor) -> Scaled:
    """Eight groups of 32; scales of six bits, the low four in nibbles, the high two in 16 bits."""
    low = torch.stack((blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4), dim=-1).view(-1, 8)
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8)
    high = ((blocks[:, 2:4, None] >> shifts) & 3).view(-1, 8)
    scales = ((low | (high << 4)).view(torch.int8) - 32).float().unsqueeze(-1)
    codes = nibbles_as(_IQ4, blocks[:, 8:136].reshape(-1, 8, 16)).view(-1, 8, 32)
    return Scaled(codes, scales.mul_(halves(blocks, 0)))


def tq1_0(blocks: Tensor) -> Scaled:
    """Five of -1, 0, 1 in a byte as a fraction of 256 in base 3; the last four bytes hold four each."""
    index = blocks[:, :52].int()
    digits = [look_up(table, index) for table in _DIGITS]
    parts = ((digits, slice(0, 32)), (digits, slice(32, 48)), (digits[:4], slice(48, 52)))
    codes = torch.cat([digit[:, place] for some, place in parts for digit in some], dim=1)
    return Scaled(codes.unsqueeze(1), halves(blocks, 52))


def tq2_0(blocks: Tensor) -> Scaled:
    codes = planes(blocks[:, :64].reshape(-1, 2, 32), 2).view(torch.int8).sub_(1)
    return Scaled(codes.view(-1, 1, 256), halves(blocks, 64))
