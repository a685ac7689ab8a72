"""Matrices as codes and scales: made from slices of rows, and made wide again.

The layouts let every torch operator run along memory, on whole vectors:

    Int8Part     codes int8 [rows, columns]             scales float32 [rows]
    Fp8Part      codes float8 e4m3fn [rows, columns]    scales float32 [rows]
    Int4Part     codes uint8 [groups, 16, rows]         scales, minima float16 [groups, 1, rows]
                 byte [g, j, r] holds column 32 g + j of row r in its low half, column 32 g + 16 + j in its high
    Int4Tiles    such parts of `block` rows each, one after the other: the layout g32-a4.v1 of `formats`

An int4 matrix is thus held transposed, and widens to [columns, rows].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogen_kernels.formats import GROUP_COLUMNS, group_count

_HALF = GROUP_COLUMNS // 2
_INT8_MOST = 127
_INT4_MOST = 15
_FP8_MOST = 448.0  # of e4m3fn
# Values of an int4 part: widened to float32 they are still in the cache when they are multiplied.
PART_VALUES = 1 << 20


@dataclass(frozen=True, slots=True)
class Int8Part:
    codes: Tensor
    scales: Tensor

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


@dataclass(frozen=True, slots=True)
class Fp8Part:
    codes: Tensor
    scales: Tensor

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


@dataclass(frozen=True, slots=True)
class Int4Part:
    codes: Tensor
    scales: Tensor
    minima: Tensor

    @property
    def rows(self) -> int:
        return self.codes.shape[2]

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + self.minima.nbytes


@dataclass(frozen=True, slots=True)
class Int4Tiles:
    """`rows` of them count; those past them fill the last tile."""

    codes: Tensor
    scales: Tensor
    minima: Tensor
    rows: int

    @property
    def tiles(self) -> int:
        return self.codes.shape[0]

    @property
    def block(self) -> int:
        return self.codes.shape[3]

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + self.minima.nbytes


def rows_at_once(columns: int) -> int:
    return max(1, PART_VALUES // columns)


def tiles_at_once(columns: int, block: int) -> int:
    return max(1, rows_at_once(columns) // block)


def pack_int8(rows: Tensor) -> Int8Part:
    """Symmetric by row: code = round(w * 127 / max|w|). Raises ValueError for a value that is not finite."""
    codes = torch.empty(rows.shape, dtype=torch.int8, device=rows.device)
    scales = torch.empty(len(rows), device=rows.device)
    step = rows_at_once(rows.shape[1])
    for first in range(0, len(rows), step):
        wide = rows[first : first + step].float()
        scale = wide.abs().amax(1) / _INT8_MOST
        _check(scale, "int8 needs weights that are finite")
        codes[first : first + step] = (wide / _no_zero(scale).unsqueeze(1)).round_()
        scales[first : first + step] = scale
    return Int8Part(codes, scales)


def pack_fp8(rows: Tensor) -> Fp8Part:
    """By row: code = w * 448 / max|w|, rounded to e4m3fn, so that a row's largest value is the largest of its codes.
    Raises ValueError for a value that is not finite."""
    codes = torch.empty(rows.shape, dtype=torch.float8_e4m3fn, device=rows.device)
    scales = torch.empty(len(rows), device=rows.device)
    step = rows_at_once(rows.shape[1])
    for first in range(0, len(rows), step):
        wide = rows[first : first + step].float()
        scale = wide.abs().amax(1) / _FP8_MOST
        _check(scale, "fp8 needs weights that are finite")
        codes[first : first + step] = (wide / _no_zero(scale).unsqueeze(1)).to(codes.dtype)
        scales[first : first + step] = scale
    return Fp8Part(codes, scales)


def pack_int4(rows: Tensor) -> Iterator[Int4Part]:
    """Asymmetric by group: code = round((w - minimum) / scale), with scale and minimum as they are held.
    Raises ValueError for columns that are not whole groups and for values beyond float16."""
    group_count(rows.shape[1])
    scratch = torch.empty(min(len(rows), rows_at_once(rows.shape[1])) * rows.shape[1], device=rows.device)
    for part in torch.split(rows, rows_at_once(rows.shape[1])):
        yield _pack_part(part, scratch)


def pack_tiles(rows: Tensor, block: int) -> Int4Tiles:
    """The codes, scales and minima of `pack_int4`, in tiles of `block` rows. Raises ValueError as it does."""
    count, columns = rows.shape
    tiles, groups = -(-count // block), group_count(columns)
    codes = torch.empty(tiles, groups, _HALF, block, dtype=torch.uint8, device=rows.device)
    scales, minima = torch.empty(2, tiles, groups, block, dtype=torch.float16, device=rows.device)
    step = tiles_at_once(columns, block)
    scratch = torch.empty(step * block * columns, device=rows.device)
    for tile, slice_ in zip(range(0, tiles, step), torch.split(rows, step * block), strict=True):
        part = _pack_part(F.pad(slice_, (0, 0, 0, -len(slice_) % block)), scratch)
        some = slice(tile, tile + step)
        codes[some] = part.codes.view(groups, _HALF, -1, block).permute(2, 0, 1, 3)
        scales[some] = part.scales.view(groups, -1, block).transpose(0, 1)
        minima[some] = part.minima.view(groups, -1, block).transpose(0, 1)
    return Int4Tiles(codes, scales, minima, count)


def _pack_part(rows: Tensor, scratch: Tensor) -> Int4Part:
    count, columns = rows.shape
    wide = scratch[: rows.numel()].view(columns, count).copy_(rows.float().t())
    wide = wide.view(-1, GROUP_COLUMNS, count)
    low, high = wide.amin(1, keepdim=True), wide.amax(1, keepdim=True)
    scales, minima = ((high - low) / _INT4_MOST).half(), low.half()
    for held in (scales, minima):
        _check(held, "int4 needs weights that are finite and within float16")
    steps = wide.sub_(minima.float()).div_(_no_zero(scales.float()))
    codes = steps.round_().clamp_(0, _INT4_MOST).to(torch.uint8)
    return Int4Part(codes[:, :_HALF] | codes[:, _HALF:] << 4, scales, minima)


def widen_int4(part: Int4Part, out: Tensor, nibbles: Tensor) -> Tensor:
    """scale * code + minimum into `out`, a float dtype, as [columns, rows]; `nibbles` uint8 is scratch of
    the size of the codes."""
    groups, _, rows = part.codes.shape
    _widen_codes(part.codes, out.view(groups, 2, _HALF, rows), nibbles)
    values = out.view(groups, GROUP_COLUMNS, rows)
    torch.addcmul(part.minima.to(out.dtype), values, part.scales.to(out.dtype), out=values)
    return out


def widen_tiles(tiles: Int4Tiles, out: Tensor, nibbles: Tensor) -> Tensor:
    """The same into `out` [tiles, columns, block]."""
    count, groups, _, block = tiles.codes.shape
    _widen_codes(tiles.codes, out.view(count, groups, 2, _HALF, block), nibbles)
    values = out.view(count, groups, GROUP_COLUMNS, block)
    minima, scales = tiles.minima.unsqueeze(2).to(out.dtype), tiles.scales.unsqueeze(2).to(out.dtype)
    torch.addcmul(minima, values, scales, out=values)
    return out


def _widen_codes(codes: Tensor, halves: Tensor, nibbles: Tensor) -> None:
    """Codes [..., 16, r] into `halves` [..., 2, 16, r], as numbers."""
    nibbles = nibbles.view(codes.shape)
    halves.select(-3, 0).copy_(torch.bitwise_and(codes, _INT4_MOST, out=nibbles))
    halves.select(-3, 1).copy_(torch.bitwise_right_shift(codes, 4, out=nibbles))


def _check(scales: Tensor, needs: str) -> None:
    if not scales.isfinite().all():
        raise ValueError(f"{needs}, and some are not")


def _no_zero(scales: Tensor) -> Tensor:
    """A group of equal values has scale 0 and any divisor gives its codes, which are 0."""
    return scales.masked_fill(scales == 0, 1.0)
