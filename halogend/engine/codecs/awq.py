"""AWQ's four-bit matrices: number = (code - zero point) * scale, in float32.

Source: AutoAWQ's `dequantize_gemm`. Eight neighbouring rows share an int32, interleaved:

    bits   0-3  4-7  8-11 12-15 16-19 20-23 24-27 28-31
    row     0    2    4    6     1     3     5     7
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.stored import Awq
from halogend.engine.codecs.packed import chunks, scale_groups, take_matrix
from halogend.engine.codecs.source import ByteSource

_SHIFTS = (0, 16, 4, 20, 8, 24, 12, 28)  # of rows 0 to 7
_SIGNED_ZERO = 8.0  # of codes without stored zero points


def decode_awq(encoded: Awq, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on into `out` [count, columns]; `first` need not begin an int32."""
    words = take_matrix(source, encoded.qweight)
    zero_words = None if encoded.qzeros is None else take_matrix(source, encoded.qzeros)
    scales = take_matrix(source, encoded.scales)
    for start, stop in chunks(len(out), encoded.columns):
        begin, end = first + start, first + stop
        values = _codes(words, begin, end)
        some_scales = scales[:, begin:end].t().float().contiguous()
        zeros = torch.full_like(some_scales, _SIGNED_ZERO) if zero_words is None else _codes(zero_words, begin, end)
        scale_groups(values, zeros, some_scales, encoded.group)
        out[start:stop] = values


def _codes(words: Tensor, begin: int, end: int) -> Tensor:
    """Codes of rows [begin, end) of `words` [width, rows / 8], float32 [end - begin, width]."""
    lowest = begin // 8
    eights = words[:, lowest : -(-end // 8)].t().contiguous()
    codes = torch.empty(len(eights), 8, eights.shape[1])
    for row, shift in enumerate(_SHIFTS):
        codes[:, row] = (eights >> shift) & 0x0F
    return codes.flatten(0, 1)[begin - 8 * lowest : end - 8 * lowest]
