"""AWQ's four-bit matrices: number = (code - zero point) * scale, in float32.

Source: AutoAWQ's `dequantize_gemm`. Eight neighbouring rows share an int32, interleaved:

    bits   0-3  4-7  8-11 12-15 16-19 20-23 24-27 28-31
    row     0    2    4    6     1     3     5     7
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.stored import Awq
from halogend.engine.codecs.packed import Codes, fill_in_chunks, scale_groups, take_matrix
from halogend.engine.codecs.source import ByteSource

_SHIFTS = (0, 16, 4, 20, 8, 24, 12, 28)  # of rows 0 to 7
_SIGNED_ZERO = 8.0  # of codes without stored zero points


def decode_awq(encoded: Awq, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on into `out` [count, columns]; `first` need not begin an int32."""
    words = take_matrix(source, encoded.qweight)
    zero_words = None if encoded.qzeros is None else take_matrix(source, encoded.qzeros)
    all_scales = take_matrix(source, encoded.scales)

    def fill(values: Tensor, start: int, stop: int) -> None:
        begin, end = first + start, first + stop
        scales, zeros = _constants(all_scales, zero_words, begin, end)
        _unpack(words, begin, values)
        scale_groups(values, zeros, scales, encoded.group)

    fill_in_chunks(out, fill)


def awq_codes(encoded: Awq, first: int, count: int, source: ByteSource) -> Codes:
    """Of `count` rows from `first` on, as they are stored."""
    zero_words = None if encoded.qzeros is None else take_matrix(source, encoded.qzeros)
    scales, zeros = _constants(take_matrix(source, encoded.scales), zero_words, first, first + count)
    codes = torch.empty(count, encoded.columns, dtype=torch.uint8)
    _unpack(take_matrix(source, encoded.qweight), first, codes)
    return Codes(codes, zeros, scales)


def _constants(all_scales: Tensor, zero_words: Tensor | None, begin: int, end: int) -> tuple[Tensor, Tensor]:
    """Scales and zero points of rows [begin, end), float32 [rows, groups]."""
    scales = all_scales[:, begin:end].t().float().contiguous()
    zeros = torch.full_like(scales, _SIGNED_ZERO)
    if zero_words is not None:
        _unpack(zero_words, begin, zeros)
    return scales, zeros


def _unpack(words: Tensor, begin: int, codes: Tensor) -> None:
    """The codes of rows `begin` on of `words` [width, rows / 8] into `codes` [count, width]."""
    count, lowest = len(codes), begin // 8
    eights = words[:, lowest : -(-(begin + count) // 8)].t().contiguous()
    for row, shift in enumerate(_SHIFTS):
        at = (row - begin) % 8  # the first of the rows that lie at this place of their words
        some = eights[(begin + at) // 8 - lowest :] >> shift
        some &= 0x0F
        here = codes[at::8]
        here.copy_(some[: len(here)])
