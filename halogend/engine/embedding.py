"""The embedding table, kept as the file has it: only the rows a step asks for are decoded.

A tied output matrix is packed for products and cannot be read by rows, so the table exists beside it;
in its stored type it is the smaller of the two, and its rows are exact in every precision.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.plain_types import PlainType
from halogend.engine.dequant import dequantise


class Embedding:
    """`raw` is uint8 [vocab, bytes of a row] holding blocks of `kind`; `width` elements a row."""

    def __init__(self, kind: GgmlType | PlainType, raw: Tensor, width: int) -> None:
        self._kind = kind
        self._raw = raw
        self._width = width

    @property
    def nbytes(self) -> int:
        return self._raw.numel()

    def __call__(self, tokens: Tensor) -> Tensor:
        """int64 [n] -> float32 [n, width]. Raises IndexError for a token outside the vocabulary."""
        out = torch.empty(len(tokens), self._width)
        dequantise(self._kind, self._raw.index_select(0, tokens), out)
        return out
