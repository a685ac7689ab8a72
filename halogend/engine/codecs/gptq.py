"""GPTQ's four-bit matrices: number = (code - zero point) * scale, in float32.

Source: AutoGPTQ's and GPTQModel's torch dequantisation. The older format stores zero points less
one, and its writers treat a zero point of 0 differently:

    AutoGPTQ     each code wraps alone: a stored 15 means 0
    GPTQModel    the whole int32 was lessened by 0x11111111 with borrow, so it is added with carry
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halogend.checkpoint.errors import INDEX_INVALID, CheckpointError
from halogend.checkpoint.stored import Gptq
from halogend.engine.codecs.packed import chunks, nibbles, scale_groups, take_matrix
from halogend.engine.codecs.source import ByteSource

_ONE_EACH = 0x11111111


@dataclass(frozen=True, slots=True)
class _Matrix:
    """`words` int32 [columns / 8, rows], `zero_words` int32 [groups, rows / 8], `scales` [groups, rows];
    `groups` int64 [columns] is each column's group, None where they follow each other."""

    words: Tensor
    zero_words: Tensor
    scales: Tensor
    groups: Tensor | None


def decode_gptq(encoded: Gptq, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on into `out` [count, columns]. Raises CheckpointError for a group index that is
    out of range."""
    matrix = _Matrix(
        take_matrix(source, encoded.qweight),
        take_matrix(source, encoded.qzeros),
        take_matrix(source, encoded.scales),
        _column_groups(encoded, source),
    )
    for start, stop in chunks(len(out), encoded.columns):
        begin, end = first + start, first + stop
        values = nibbles(matrix.words[:, begin:end].t().contiguous()).float()
        zeros = _zero_points(encoded, matrix.zero_words, begin, end)
        scales = matrix.scales[:, begin:end].t().float().contiguous()
        if matrix.groups is None:
            scale_groups(values, zeros, scales, encoded.group)
        else:
            values.sub_(zeros.index_select(1, matrix.groups))
            values.mul_(scales.index_select(1, matrix.groups))
        out[start:stop] = values


def _zero_points(encoded: Gptq, words: Tensor, begin: int, end: int) -> Tensor:
    """The zero points of rows [begin, end), float32 [rows, groups]."""
    lowest = begin // 8
    words = words[:, lowest : -(-end // 8)].contiguous()
    if encoded.zero_offset and encoded.zero_carry:
        words = words + _ONE_EACH
    codes = nibbles(words)[:, begin - 8 * lowest : end - 8 * lowest]
    if encoded.zero_offset and not encoded.zero_carry:
        codes = (codes + 1) & 0x0F
    return codes.t().float().contiguous()


def _column_groups(encoded: Gptq, source: ByteSource) -> Tensor | None:
    if encoded.g_idx is None:
        return None
    groups = take_matrix(source, encoded.g_idx).flatten()
    count = encoded.scales.shape[0]
    lowest, highest = int(groups.min()), int(groups.max())
    if lowest < 0 or highest >= count:
        wrong = lowest if lowest < 0 else highest
        raise CheckpointError(
            INDEX_INVALID, f"tensor {encoded.g_idx.name!r}: holds the group {wrong}; there are groups 0 to {count - 1}"
        )
    if torch.equal(groups, torch.arange(len(groups), dtype=groups.dtype) // encoded.group):
        return None
    return groups.long()
