"""Tensors of plain floating types, and of GGML blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.errors import TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.stored import Plain
from halogend.engine.codecs.packed import aligned
from halogend.engine.codecs.source import ByteSource, TensorError
from halogend.engine.dequant import PLAIN, dequantise

_RAW_BYTES = 4 << 20  # asked of the source at once
_UNIT = 256  # elements in the largest block: rows of one element are cut at multiples of it


def plain_rows(encoded: Plain, first: int, count: int, dtype: torch.dtype, source: ByteSource) -> Tensor | None:
    """Rows of a tensor of numbers of `dtype` as they lie, [count, columns], to be read only and for as long as
    what the source gave; None for a tensor of anything else."""
    tensor, columns = encoded.tensor, encoded.columns
    if PLAIN.get(tensor.type) != dtype:
        return None
    row_bytes = columns * dtype.itemsize
    raw = source.take(tensor, first * row_bytes, count * row_bytes)
    return aligned(raw, dtype.itemsize).view(dtype).view(count, columns)


def decode_plain(encoded: Plain, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on into `out` [count, columns]. Raises CheckpointError for a type that is no
    weight's, and for a part of a vector that does not begin and end with a block."""
    tensor, columns = encoded.tensor, encoded.columns
    block_elements, block_bytes = tensor.type.block_elements, tensor.type.block_bytes
    if first * columns % block_elements or out.numel() % block_elements:
        raise TensorError(TYPE_UNSUPPORTED, tensor, f"{tensor.type.name} blocks cannot be cut inside")
    row_bytes = max(1, columns * block_bytes // block_elements)
    step = max(1, _RAW_BYTES // row_bytes // _UNIT * _UNIT if columns == 1 else _RAW_BYTES // row_bytes)
    for start in range(0, len(out), step):
        piece = out[start : start + step]
        begin = (first + start) * columns // block_elements * block_bytes
        raw = source.take(tensor, begin, piece.numel() // block_elements * block_bytes)
        try:
            dequantise(tensor.type, aligned(raw, block_bytes if block_elements == 1 else 8), piece)
        except CheckpointError as error:
            raise TensorError(error.code, tensor, error.message) from error
