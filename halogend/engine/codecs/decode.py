"""Which decoder an encoding has."""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.stored import Awq, Encoded, Fp8, Gptq, Plain, RowFp8, RowInt8, Scaled, TiledInt4
from halogend.engine.codecs.awq import decode_awq
from halogend.engine.codecs.fp8 import decode_fp8
from halogend.engine.codecs.gptq import decode_gptq
from halogend.engine.codecs.plain import decode_plain, plain_rows
from halogend.engine.codecs.planes import decode_rows_scaled, decode_tiles
from halogend.engine.codecs.scaled import decode_scaled
from halogend.engine.codecs.source import ByteSource


def stored_rows(encoded: Encoded, first: int, count: int, dtype: torch.dtype, source: ByteSource) -> Tensor | None:
    """Rows `first` to `first + count - 1` where they lie, [count, columns], if they are stored as numbers of
    `dtype`: to be read only, and only until this thread's next take of the same tensor. Else None. What the
    source raises passes through."""
    return plain_rows(encoded, first, count, dtype, source) if isinstance(encoded, Plain) else None


def decode_rows(encoded: Encoded, first: int, count: int, out: Tensor, source: ByteSource) -> None:
    """Writes rows `first` to `first + count - 1` of a stored matrix as numbers into `out` [count,
    columns] (float32 or bfloat16, contiguous; bfloat16 is the rounded float32).

    Safe from several threads with tensors of their own. Needs a few MiB beside what the
    source holds. Raises CheckpointError naming the tensor for codes that contradict each other and
    for a type that nobody decodes; what the source raises passes through.
    """
    out = out.view(count, encoded.columns)
    match encoded:
        case Plain():
            decode_plain(encoded, first, out, source)
        case Scaled():
            decode_scaled(encoded, first, out, source)
        case Fp8():
            decode_fp8(encoded, first, out, source)
        case Gptq():
            decode_gptq(encoded, first, out, source)
        case Awq():
            decode_awq(encoded, first, out, source)
        case RowInt8() | RowFp8():
            decode_rows_scaled(encoded, first, out, source)
        case TiledInt4():
            decode_tiles(encoded, first, out, source)
