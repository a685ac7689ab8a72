"""Eight-bit floats with one scale, or one for each block of rows and columns.

Source: the OCP 8-bit floating point specification (E4M3 without infinities, E5M2); the block scales
are those of DeepSeek-V3's checkpoints, number = code * scale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.stored import Fp8
from halogend.engine.codecs.packed import TORCH_TYPES, chunks, scale_groups, take_matrix
from halogend.engine.codecs.source import ByteSource


def decode_fp8(encoded: Fp8, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on into `out` [count, columns]; `first` need not begin a block."""
    columns = encoded.columns
    scales = take_matrix(source, encoded.scale).float()
    numbers = torch.arange(256, dtype=torch.uint8).view(TORCH_TYPES[encoded.weight.type.name]).float()
    for start, stop in chunks(len(out), columns):
        raw = source.take(encoded.weight, (first + start) * columns, (stop - start) * columns)
        values = numbers.index_select(0, raw.int()).view(-1, columns)
        if encoded.block is None:
            values.mul_(scales)
        else:
            block_rows, block_columns = encoded.block
            rows = torch.arange(first + start, first + stop) // block_rows
            scale_groups(values, None, scales.index_select(0, rows), block_columns)
        out[start:stop] = values
