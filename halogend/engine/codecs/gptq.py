"""GPTQ's four-bit matrices: number = (code - zero point) * scale, in float32.

Source: AutoGPTQ's and GPTQModel's torch dequantisation. The older format stores zero points less
one, and its writers treat a zero point of 0 differently:

    AutoGPTQ     each code wraps alone: a stored 15 means 0
    GPTQModel    the whole int32 was lessened by 0x11111111 with borrow, so it is added with carry
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.errors import INDEX_INVALID
from halogend.checkpoint.stored import Gptq
from halogend.engine.codecs.packed import Codes, fill_in_chunks, nibbles, scale_groups, take_matrix
from halogend.engine.codecs.source import ByteSource, TensorError

_ONE_EACH = 0x11111111


def decode_gptq(encoded: Gptq, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on into `out` [count, columns]. Raises CheckpointError for a group index that is
    out of range."""
    words = take_matrix(source, encoded.qweight)
    zero_words = take_matrix(source, encoded.qzeros)
    all_scales = take_matrix(source, encoded.scales)
    groups = _column_groups(encoded, source)
    gathered = torch.empty(0)

    def fill(values: Tensor, start: int, stop: int) -> None:
        begin, end = first + start, first + stop
        values.copy_(nibbles(words[:, begin:end].t().contiguous()))
        zeros = _zero_points(encoded, zero_words, begin, end)
        scales = all_scales[:, begin:end].t().float().contiguous()
        if groups is None:
            scale_groups(values, zeros, scales, encoded.group)
        else:
            values.sub_(torch.index_select(zeros, 1, groups, out=gathered.resize_(values.shape)))
            values.mul_(torch.index_select(scales, 1, groups, out=gathered))

    fill_in_chunks(out, fill)


def gptq_codes(encoded: Gptq, first: int, count: int, source: ByteSource) -> Codes | None:
    """Of `count` rows from `first` on, as they are stored; None where columns are not in the order of their groups.
    Raises CheckpointError for a group index that is out of range."""
    if _column_groups(encoded, source) is not None:
        return None
    words, zero_words = take_matrix(source, encoded.qweight), take_matrix(source, encoded.qzeros)
    end = first + count
    return Codes(
        codes=nibbles(words[:, first:end].t().contiguous()),
        zeros=_zero_points(encoded, zero_words, first, end),
        scales=take_matrix(source, encoded.scales)[:, first:end].t().float().contiguous(),
    )


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
        what = f"holds the group {wrong}; there are groups 0 to {count - 1}"
        raise TensorError(INDEX_INVALID, encoded.g_idx, what)
    if torch.equal(groups, torch.arange(len(groups), dtype=groups.dtype) // encoded.group):
        return None
    return groups.long()
