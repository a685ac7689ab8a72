"""The layouts of v2 checkpoints: number = scale * code (+ minimum), in float32.

Source: halogend's own format, docs/checkpoint-v2.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.stored import RowFp8, RowInt8, TiledInt4
from halogend.checkpoint.v2.layout import GROUP_COLUMNS, Plane
from halogend.engine.codecs.packed import aligned, fill_in_chunks
from halogend.engine.codecs.source import ByteSource

PLANE_TYPES: dict[PlainType, torch.dtype] = {
    PlainType.F32: torch.float32,
    PlainType.F16: torch.float16,
    PlainType.I8: torch.int8,
    PlainType.U8: torch.uint8,
    PlainType.F8_E4M3: torch.float8_e4m3fn,
}
_HALF = GROUP_COLUMNS // 2


def decode_rows_scaled(encoded: RowInt8 | RowFp8, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on of codes with a scale for each row into `out` [count, columns]."""
    codes, scales = encoded.planes
    all_scales = _take(encoded, scales, first, len(out), source).clone()  # another take ends the first

    def fill(values: Tensor, start: int, stop: int) -> None:
        values.copy_(_take(encoded, codes, first + start, stop - start, source))
        values.mul_(all_scales[start:stop, None])

    fill_in_chunks(out, fill)


def decode_tiles(encoded: TiledInt4, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on of tiles into `out` [count, columns]; `first` need not begin a tile."""
    block = encoded.block

    def fill(values: Tensor, start: int, stop: int) -> None:
        lowest, highest = (first + start) // block, -(-(first + stop) // block)
        begin = first + start - lowest * block
        wide = _widened(encoded, lowest, highest - lowest, source)
        values.copy_(wide[begin : begin + stop - start])

    fill_in_chunks(out, fill)


def _widened(encoded: TiledInt4, first: int, count: int, source: ByteSource) -> Tensor:
    """The rows of `count` tiles, float32 [count * block, columns]."""
    codes, *constants = encoded.planes
    scales, minima = (
        _take(encoded, plane, first, count, source).transpose(1, 2).float()[..., None, None] for plane in constants
    )
    packed = _take(encoded, codes, first, count, source).permute(0, 3, 1, 2)  # [tiles, block, groups, 16]
    wide = torch.empty(*packed.shape[:3], 2, _HALF)
    wide[:, :, :, 0] = packed & 0x0F
    wide[:, :, :, 1] = packed >> 4
    return wide.mul_(scales).add_(minima).view(-1, encoded.columns)


def _take(encoded: RowInt8 | RowFp8 | TiledInt4, plane: Plane, first: int, count: int, source: ByteSource) -> Tensor:
    """Entries `first` to `first + count - 1` along the plane's first axis; until this thread's next take."""
    each = plane.nbytes // plane.shape[0]
    kind = PLANE_TYPES[plane.dtype]
    raw = aligned(source.take(encoded.tensor, plane.offset + first * each, count * each), kind.itemsize)
    return raw.view(kind).view(count, *plane.shape[1:])
