"""GGML blocks to numbers, vectorised, bit for bit what the `gguf` package gives.

One table of decoders; each reads its type's layout, and the arithmetic after that is the same for
all. Works chunk by chunk, so that intermediate values stay in the caches.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from halogend.checkpoint.errors import TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.plain_types import PlainType
from halogend.engine.ggml import grid, large, small
from halogend.engine.ggml.bits import Scaled

CHUNK_ELEMENTS = 1 << 19

PLAIN: dict[GgmlType | PlainType, torch.dtype] = {
    GgmlType.F32: torch.float32,
    GgmlType.F16: torch.float16,
    GgmlType.BF16: torch.bfloat16,
    GgmlType.F64: torch.float64,
    PlainType.F32: torch.float32,
    PlainType.F16: torch.float16,
    PlainType.BF16: torch.bfloat16,
    PlainType.F64: torch.float64,
}

_DECODERS: dict[GgmlType | PlainType, Callable[[Tensor], Scaled]] = {
    GgmlType.Q1_0: small.q1_0,
    GgmlType.Q4_0: small.q4_0,
    GgmlType.Q4_1: small.q4_1,
    GgmlType.Q5_0: small.q5_0,
    GgmlType.Q5_1: small.q5_1,
    GgmlType.Q8_0: small.q8_0,
    GgmlType.IQ4_NL: small.iq4_nl,
    GgmlType.MXFP4: small.mxfp4,
    GgmlType.NVFP4: small.nvfp4,
    GgmlType.Q2_K: large.q2_k,
    GgmlType.Q3_K: large.q3_k,
    GgmlType.Q4_K: large.q4_k,
    GgmlType.Q5_K: large.q5_k,
    GgmlType.Q6_K: large.q6_k,
    GgmlType.IQ4_XS: large.iq4_xs,
    GgmlType.TQ1_0: large.tq1_0,
    GgmlType.TQ2_0: large.tq2_0,
    GgmlType.IQ1_S: grid.iq1_s,
    GgmlType.IQ1_M: grid.iq1_m,
    GgmlType.IQ2_XXS: grid.iq2_xxs,
    GgmlType.IQ2_XS: grid.iq2_xs,
    GgmlType.IQ2_S: grid.iq2_s,
    GgmlType.IQ3_XXS: grid.iq3_xxs,
    GgmlType.IQ3_S: grid.iq3_s,
}


def dequantise(kind: GgmlType | PlainType, raw: Tensor, out: Tensor) -> None:
    """Writes the elements of `raw` (uint8, whole blocks of `kind`, contiguous, at a multiple of 8
    bytes of its storage) into `out` (contiguous, any floating dtype, as many elements). Other than
    float32 it gets the float32 value, rounded. Needs memory for one chunk beside the two.

    Raises CheckpointError for a type that is no weight's.
    """
    plain = PLAIN.get(kind)
    if plain is not None:
        out.view(-1).copy_(raw.view(-1).view(plain))
        return
    decode = _DECODERS.get(kind)
    if decode is None:
        raise CheckpointError(TYPE_UNSUPPORTED, f"type {kind.name} cannot be decoded")
    blocks = raw.view(-1, kind.block_bytes)
    flat = out.view(-1, kind.block_elements)
    step = max(1, CHUNK_ELEMENTS // kind.block_elements)
    for first in range(0, len(blocks), step):
        _write(decode(blocks[first : first + step]), flat[first : first + step])


def _write(block: Scaled, out: Tensor) -> None:
    values = out.view(block.codes.shape) if out.dtype == torch.float32 else torch.empty(block.codes.shape)
    values.copy_(block.codes).mul_(block.scales)
    if block.offsets is not None:
        values.add_(block.offsets)
    if out.dtype != torch.float32:
        out.copy_(values.view(out.shape))
