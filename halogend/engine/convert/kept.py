"""Four-bit codes that a source has already, taken over as they are.

Q4_0, Q4_1    scale and minimum are float16 in the source too: nothing is lost
Q4_K          both are products of a float16 and six bits, and rounded to float16 here
AWQ, GPTQ     groups of a multiple of 32 columns are cut; minimum = -zero point * scale, rounded to float16.
              Columns in another order than their groups (act-order) have no scale for 32 in a row: not kept
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.stored import Awq, Gptq, Piece, Plain
from halogend.checkpoint.v2.layout import GROUP_COLUMNS
from halogend.engine.codecs.awq import awq_codes
from halogend.engine.codecs.gptq import gptq_codes
from halogend.engine.codecs.packed import Codes, aligned
from halogend.engine.codecs.source import ByteSource
from halogend.engine.convert.four_bit import Groups, checked
from halogend.engine.ggml import large, small
from halogend.engine.ggml.bits import Scaled

_BLOCKS: Mapping[GgmlType | PlainType, Callable[[Tensor], Scaled]] = {
    GgmlType.Q4_0: small.q4_0,
    GgmlType.Q4_1: small.q4_1,
    GgmlType.Q4_K: large.q4_k,
}
_CENTRE = 8  # of Q4_0, whose codes are signed and whose minimum is so many scales below 0


def kept_groups(piece: Piece, source: ByteSource) -> Groups | None:
    """Of the piece's rows; None where the source has no such codes. Raises ValueError for scales beyond float16;
    what the source raises passes through."""
    encoded = piece.encoded
    if encoded.columns % GROUP_COLUMNS:
        return None
    match encoded:
        case Plain() if encoded.tensor.type in _BLOCKS:
            return _of_blocks(encoded, piece, source)
        case Awq() if encoded.group % GROUP_COLUMNS == 0:
            return _of_codes(awq_codes(encoded, piece.first, piece.rows, source), encoded.group)
        case Gptq() if encoded.group % GROUP_COLUMNS == 0:
            codes = gptq_codes(encoded, piece.first, piece.rows, source)
            return None if codes is None else _of_codes(codes, encoded.group)
    return None


def _of_blocks(encoded: Plain, piece: Piece, source: ByteSource) -> Groups:
    tensor = encoded.tensor
    row_bytes = encoded.columns // tensor.type.block_elements * tensor.type.block_bytes
    raw = aligned(source.take(tensor, piece.first * row_bytes, piece.rows * row_bytes), 8)
    block = _BLOCKS[tensor.type](raw.view(-1, tensor.type.block_bytes))
    codes, scales = block.codes.reshape(piece.rows, -1, GROUP_COLUMNS), block.scales.reshape(piece.rows, -1)
    if block.offsets is None:
        return checked((codes + _CENTRE).to(torch.uint8), scales, scales * -_CENTRE)
    return checked(codes.to(torch.uint8), scales, block.offsets.reshape(piece.rows, -1))


def _of_codes(found: Codes, group: int) -> Groups:
    """The last group may be cut short."""
    codes = found.codes.view(len(found.codes), -1, GROUP_COLUMNS)
    scales, minima = (
        each.repeat_interleave(group // GROUP_COLUMNS, dim=1)[:, : codes.shape[1]]
        for each in (found.scales, -found.zeros * found.scales)
    )
    return checked(codes, scales, minima)
