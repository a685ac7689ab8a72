"""GGML's types whose codes are points of a grid: one index stands for four or eight elements.

Source of the layouts: ggml's block definitions (`ggml-common.h`). The grids were searched for, not
computed, so they are numbers that only a table can give: the `gguf` package's, read at first use.
Signs of the older types are seven bits; the eighth makes their number even.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from halogend.engine.ggml.bits import Scaled, bit_table, halves, look_up, pack, unpacked, words

_SIGNS = bit_table(1, -1)
_BITS = bit_table(0, 1)
_EVEN_SIGNS = _SIGNS[[index | (index.bit_count() % 2) << 7 for index in range(128)]]
_FOUR_BITS = torch.arange(16) + 0.5
_SIGN_SHIFTS = torch.arange(0, 28, 7, dtype=torch.int32)


@cache
def _grid(name: str) -> Tensor:
    """The grid of a type as a packed table."""
    import gguf  # noqa: PLC0415 (slow to import, and for these types only)

    quantisation = getattr(gguf.quants, name)
    quantisation.init_grid()
    return pack(torch.from_numpy(quantisation.grid[0, 0]))


@cache
def _shifted_grid() -> Tensor:
    """IQ1's grid of -1, 0, 1 in eighths: moved by an eighth up, then the same moved down."""
    eighths = _grid("IQ1_S").view(torch.int8).view(-1, 8) * 8
    return pack(torch.cat((eighths + 1, eighths - 1)))


def iq2_xxs(blocks: Tensor) -> Scaled:
    """Eight groups of 32: four indices, then four times seven signs and a scale in 32 bits."""
    groups = blocks[:, 2:66].view(-1, 8, 8)
    packed = groups[:, :, 4:].contiguous().view(torch.int32)
    points = unpacked(_grid("IQ2_XXS"), groups[:, :, :4])
    return Scaled(points * _even_signs(packed), _four_bit_scales(blocks, (packed >> 28) & 15, 0.25))


def iq2_xs(blocks: Tensor) -> Scaled:
    """Sixteen groups of 16: nine bits of index and seven of signs for each eight elements."""
    packed = words(blocks, 2, 66, torch.int16).int()
    codes = unpacked(_grid("IQ2_XS"), packed & 511) * unpacked(_EVEN_SIGNS, (packed >> 9) & 127)
    return Scaled(codes.view(-1, 16, 16), _four_bit_scales(blocks, _nibbles(blocks[:, 66:74]), 0.25))


def iq2_s(blocks: Tensor) -> Scaled:
    """Sixteen groups of 16: ten bits of index for each eight elements, signs as they are."""
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8)
    high = ((blocks[:, 66:74, None] >> shifts) & 3).view(-1, 32)
    points = unpacked(_grid("IQ2_S"), blocks[:, 2:34] | (high.int() << 8))
    codes = points * unpacked(_SIGNS, blocks[:, 34:66])
    return Scaled(codes.view(-1, 16, 16), _four_bit_scales(blocks, _nibbles(blocks[:, 74:82]), 0.25))


def iq3_xxs(blocks: Tensor) -> Scaled:
    """Eight groups of 32: an index for each four elements; signs and scales as in IQ2_XXS."""
    packed = words(blocks, 66, 98, torch.int32).unsqueeze(-1)
    points = unpacked(_grid("IQ3_XXS"), blocks[:, 2:66]).view(-1, 8, 32)
    return Scaled(points * _even_signs(packed), _four_bit_scales(blocks, (packed >> 28) & 15, 0.5))


def iq3_s(blocks: Tensor) -> Scaled:
    """Eight groups of 32: nine bits of index for each four elements, signs as they are; the scales
    are odd multiples."""
    high = unpacked(_BITS, blocks[:, 66:74])
    points = unpacked(_grid("IQ3_S"), blocks[:, 2:66] | (high.int() << 8))
    codes = points * unpacked(_SIGNS, blocks[:, 74:106])
    odd = (2 * _nibbles(blocks[:, 106:110]) + 1).float()
    return Scaled(codes.view(-1, 8, 32), odd.mul_(halves(blocks, 0)))


def iq1_s(blocks: Tensor) -> Scaled:
    """Eight groups of 32: three high bits for each of four indices, a scale, and which way the grid
    is moved, in 16 bits."""
    packed = words(blocks, 34, 50, torch.int16).int().unsqueeze(-1)
    high = (packed >> torch.arange(0, 12, 3, dtype=torch.int32)) & 7
    index = blocks[:, 2:34].view(-1, 8, 4) | (high << 8) | ((packed >> 4) & 2048)
    odd = (2 * ((packed >> 12) & 7) + 1).float()
    return Scaled(unpacked(_shifted_grid(), index), odd.mul_(halves(blocks, 0)).mul_(0.125))


def iq1_m(blocks: Tensor) -> Scaled:
    """Sixteen groups of 16: three high bits for each of two indices and which way the grid is moved
    for each, in a byte; four scales of three bits in 16, whose upper four are the block's scale."""
    packed = words(blocks, 48, 56, torch.int16).int() & 0xFFFF
    quarters = (packed >> 12) << torch.arange(0, 16, 4, dtype=torch.int32)
    half = quarters.sum(1, dtype=torch.int32).to(torch.int16).view(torch.float16).float().view(-1, 1, 1)
    nibbles = _nibbles(blocks[:, 32:48]).view(-1, 32).int()
    index = blocks[:, :32] | ((nibbles & 7) << 8) | ((nibbles & 8) << 8)
    small = (packed.unsqueeze(-1) >> torch.arange(0, 12, 3, dtype=torch.int32)) & 7
    odd = (2 * small + 1).view(-1, 16, 1).float()
    return Scaled(unpacked(_shifted_grid(), index).view(-1, 16, 16), odd.mul_(half).mul_(0.125))


def _even_signs(packed: Tensor) -> Tensor:
    """int32 [n, 8, 1] with four times seven signs -> int8 [n, 8, 32] of 1 and -1."""
    return unpacked(_EVEN_SIGNS, (packed >> _SIGN_SHIFTS) & 127)


def _nibbles(packed: Tensor) -> Tensor:
    """[n, w] bytes -> [n, 2 * w, 1]: each byte's low half, then its high half."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).view(len(packed), -1, 1)


def _four_bit_scales(blocks: Tensor, small: Tensor, unit: float) -> Tensor:
    """The block's scale times (small + 1/2) times `unit`, rounded after each product."""
    return (look_up(_FOUR_BITS, small) * halves(blocks, 0)).mul_(unit)
