"""Eight-bit floats with one scale, or one for each block of rows and columns.

Source: the OCP 8-bit floating point specification (E4M3 without infinities, E5M2); the block scales
are those of DeepSeek-V3's checkpoints, number = code * scale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.stored import Fp8
from halogend.engine.codecs.packed import fill_in_chunks, scale_groups, take_matrix
from halogend.engine.codecs.source import ByteSource

_TYPES: dict[GgmlType | PlainType, torch.dtype] = {
    PlainType.F8_E4M3: torch.float8_e4m3fn,
    PlainType.F8_E5M2: torch.float8_e5m2,
}


def decode_fp8(encoded: Fp8, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on into `out` [count, columns]; `first` need not begin a block."""
    columns = encoded.columns
    scales = take_matrix(source, encoded.scale).float()
    numbers = torch.arange(256, dtype=torch.uint8).view(_TYPES[encoded.weight.type]).float()

    def fill(values: Tensor, start: int, stop: int) -> None:
        raw = source.take(encoded.weight, (first + start) * columns, (stop - start) * columns)
        torch.index_select(numbers, 0, raw.int(), out=values.view(-1))
        if encoded.block is None:
            values.mul_(scales)
        else:
            block_rows, block_columns = encoded.block
            rows = torch.arange(first + start, first + stop) // block_rows
            scale_groups(values, None, scales.index_select(0, rows), block_columns)

    fill_in_chunks(out, fill)
