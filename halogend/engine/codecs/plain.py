"""Tensors of plain floating types, and of GGML blocks."""

from __future__ import annotations

from torch import Tensor

from halogend.checkpoint.errors import TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.stored import Plain
from halogend.engine.codecs.packed import TORCH_TYPES, typed
from halogend.engine.codecs.source import ByteSource
from halogend.engine.dequant import dequantise

_RAW_BYTES = 4 << 20  # asked of the source at once
_FLOATS = ("F64", "F32", "F16", "BF16")


def decode_plain(encoded: Plain, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on into `out` [count, columns]."""
    tensor = encoded.tensor
    row_bytes = tensor.nbytes // encoded.rows
    step = max(1, _RAW_BYTES // row_bytes)
    for start in range(0, len(out), step):
        piece = out[start : start + step]
        raw = source.take(tensor, (first + start) * row_bytes, len(piece) * row_bytes)
        if isinstance(tensor.type, GgmlType):
            _decode_blocks(tensor.name, tensor.type, raw, piece)
        elif tensor.type.name in _FLOATS:
            piece.copy_(typed(raw, TORCH_TYPES[tensor.type.name]).view(piece.shape))
        else:
            raise CheckpointError(
                TYPE_UNSUPPORTED, f"tensor {tensor.name!r}: type {tensor.type.name} is none that weights are read from"
            )


def _decode_blocks(name: str, kind: GgmlType, raw: Tensor, out: Tensor) -> None:
    try:
        dequantise(kind, raw.clone() if raw.storage_offset() % 8 else raw, out)
    except CheckpointError as error:
        raise CheckpointError(error.code, f"tensor {name!r}: {error.message}") from error
