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
    """`raw` is uint8 [vocab, bytes of a row] holding blocks of `kind`; `width` elements a row. Tokens lie where
    `raw` does."""

    def __init__(self, kind: GgmlType | PlainType, raw: Tensor, width: int) -> None:
        self.kind = kind
        self.raw = raw
        self.width = width

    @property
    def nbytes(self) -> int:
        return self.raw.numel()

    def __call__(self, tokens: Tensor) -> Tensor:
        """int64 [n] -> float32 [n, width]. Raises IndexError for a token outside the vocabulary, on the host."""
        out = torch.empty(len(tokens), self.width, device=self.raw.device)
        dequantise(self.kind, self.raw.index_select(0, tokens), out)
        return out
