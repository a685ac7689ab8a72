"""GGML's types with small blocks: 32 to 128 elements under one scale, or one for every 16.

Source of the layouts: ggml's block definitions (`ggml-common.h`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.engine.ggml.bits import Scaled, bit_table, halves, look_up, planes, unpacked

_FIFTH_BITS = bit_table(0, 16)
_SIGNS = bit_table(-1, 1)

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice E2M1, without its -0


def nibble_values(values: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Tables for a byte's low and high half, each of which stands for one of 16 `values`."""
    both = torch.tensor(values, dtype=torch.int8)
    return both.repeat(16), both.repeat_interleave(16)


_IQ4 = nibble_values(IQ4_VALUES)
_FP4 = nibble_values(_FP4_VALUES)


def nibbles_as(tables: tuple[Tensor, Tensor], packed: Tensor) -> Tensor:
    """[..., w] bytes -> int8 [..., 2, w]: values of the low halves, then of the high halves."""
    index = packed.int()
    return torch.stack([look_up(table, index) for table in tables], dim=-2)


def _e8m0() -> Tensor:
    """Half of 2^(byte - 127): the scales of MXFP4, whose values are doubled."""
    exponents = torch.arange(256, dtype=torch.float64)
    return torch.exp2(exponents - 128).float()


def _ue4m3() -> Tensor:
    """Half of an E4M3 number whose sign bit is not looked at; its NaN counts as 0."""
    byte = torch.arange(256)
    exponent, mantissa = (byte >> 3) & 15, (byte & 7).double()
    normal = (1 + mantissa / 8) * torch.exp2(exponent.double() - 7)
    values = torch.where(exponent == 0, mantissa * 2**-9, normal) / 2
    values[0x7F] = 0
    return values.float()


_E8M0 = _e8m0()
_UE4M3 = _ue4m3()


def q4_0(blocks: Tensor) -> Scaled:
    return Scaled(planes(blocks[:, 2:18], 4).view(torch.int8).sub_(8), halves(blocks, 0))


def q4_1(blocks: Tensor) -> Scaled:
    return Scaled(planes(blocks[:, 4:20], 4), halves(blocks, 0), halves(blocks, 2))


def q5_0(blocks: Tensor) -> Scaled:
    return Scaled(_five_bits(blocks[:, 2:6], blocks[:, 6:22]).sub_(16), halves(blocks, 0))


def q5_1(blocks: Tensor) -> Scaled:
    return Scaled(_five_bits(blocks[:, 4:8], blocks[:, 8:24]), halves(blocks, 0), halves(blocks, 2))


def _five_bits(high: Tensor, low: Tensor) -> Tensor:
    """Four bits of each element in halves of bytes, the fifth ones in a row: int8 [n, 2, 16]."""
    return planes(low, 4).view(torch.int8).bitwise_or_(unpacked(_FIFTH_BITS, high).view(-1, 2, 16))


def q8_0(blocks: Tensor) -> Scaled:
    return Scaled(blocks[:, None, 2:34].view(torch.int8), halves(blocks, 0))


def q1_0(blocks: Tensor) -> Scaled:
    """One bit an element: the scale or its negative."""
    return Scaled(unpacked(_SIGNS, blocks[:, None, 2:18]), halves(blocks, 0))


def iq4_nl(blocks: Tensor) -> Scaled:
    return Scaled(nibbles_as(_IQ4, blocks[:, 2:18]), halves(blocks, 0))


def mxfp4(blocks: Tensor) -> Scaled:
    """OCP microscaling: an eight-bit exponent for 32 elements of E2M1."""
    return Scaled(nibbles_as(_FP4, blocks[:, 1:17]), look_up(_E8M0, blocks[:, 0]).view(-1, 1, 1))


def nvfp4(blocks: Tensor) -> Scaled:
    """An E4M3 scale for every 16 elements of E2M1."""
    codes = nibbles_as(_FP4, blocks[:, 4:36].reshape(-1, 4, 8))
    return Scaled(codes.view(-1, 4, 16), look_up(_UE4M3, blocks[:, :4]).unsqueeze(-1))
