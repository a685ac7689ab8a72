"""Matrices whose decoded numbers are multiplied by a scale, in float32.

Source: llama.cpp multiplies a product by the scale; here the weights are, so that they can be packed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.stored import Scaled
from halogend.engine.codecs.packed import fill_in_chunks, take_matrix
from halogend.engine.codecs.plain import decode_plain
from halogend.engine.codecs.source import ByteSource


def decode_scaled(encoded: Scaled, first: int, out: Tensor, source: ByteSource) -> None:
    """Rows `first` on into `out` [count, columns]."""
    scales = take_matrix(source, encoded.scale).flatten().clone()  # a GGUF file's reads share one buffer
    rows_each = encoded.rows // len(scales)

    def fill(values: Tensor, start: int, stop: int) -> None:
        decode_plain(encoded.matrix, first + start, values, source)
        matrices = torch.arange(first + start, first + stop) // rows_each
        values.mul_(scales.index_select(0, matrices)[:, None])

    fill_in_chunks(out, fill)
