"""Quantised matrices taken where they lie: not a byte of them is copied, or looked at before it is multiplied."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from halogen_kernels.formats import FP8_ROWS, GROUP_COLUMNS, INT4_TILES, INT8_ROWS, group_count
from halogen_kernels.quantise import Fp8Part, Int4Tiles, Int8Part, tiles_at_once
from halogen_kernels.values import StoredPart

_HALF = GROUP_COLUMNS // 2


def adopt_int8(stored: StoredPart) -> Iterator[Int8Part]:
    """Raises ValueError unless the planes are those of r8.v1."""
    _check_layout(stored, INT8_ROWS)
    codes = _plane(stored, "codes", torch.int8, (stored.rows, stored.columns))
    yield Int8Part(codes, _plane(stored, "scales", torch.float32, (stored.rows,)))


def adopt_fp8(stored: StoredPart) -> Iterator[Fp8Part]:
    """Raises ValueError unless the planes are those of f8.v1."""
    _check_layout(stored, FP8_ROWS)
    codes = _plane(stored, "codes", torch.float8_e4m3fn, (stored.rows, stored.columns))
    yield Fp8Part(codes, _plane(stored, "scales", torch.float32, (stored.rows,)))


def int4_tiles(stored: StoredPart) -> Int4Tiles:
    """All tiles. Raises ValueError unless the planes are those of g32-a4.v1, with any block."""
    _check_layout(stored, INT4_TILES)
    block = stored.planes["codes"].shape[-1]
    tiles, groups = -(-stored.rows // block), group_count(stored.columns)
    codes = _plane(stored, "codes", torch.uint8, (tiles, groups, _HALF, block))
    scales = _plane(stored, "scales", torch.float16, (tiles, groups, block))
    minima = _plane(stored, "minima", torch.float16, (tiles, groups, block))
    return Int4Tiles(codes, scales, minima, stored.rows)


def adopt_int4(stored: StoredPart) -> Iterator[Int4Tiles]:
    """As many tiles at a time as are multiplied at once. Raises ValueError as `int4_tiles` does."""
    all_tiles = int4_tiles(stored)
    block = all_tiles.block
    step = tiles_at_once(stored.columns, block)
    for first in range(0, all_tiles.tiles, step):
        some = slice(first, first + step)
        rows = min(step * block, stored.rows - first * block)
        yield Int4Tiles(all_tiles.codes[some], all_tiles.scales[some], all_tiles.minima[some], rows)


def _check_layout(stored: StoredPart, wanted: str) -> None:
    if stored.layout != wanted:
        raise ValueError(f"a matrix in the layout {stored.layout!r} is not used where it lies; one in {wanted!r} is")


def _plane(stored: StoredPart, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    plane = stored.planes[name]
    if plane.dtype != dtype or tuple(plane.shape) != shape or not plane.is_contiguous():
        found = f"{plane.dtype} {list(plane.shape)}" + ("" if plane.is_contiguous() else ", not contiguous")
        raise ValueError(
            f"the plane {name!r} of a matrix in {stored.layout} is {found}; {dtype} {list(shape)} is wanted"
        )
    return plane
