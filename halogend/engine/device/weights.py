"""A checkpoint's weights, moved to a device as they are loaded."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from halogen_kernels import LinearWeight
from halogen_kernels.seam import Embed
from torch import Tensor

from halogend.checkpoint.gguf_types import GgmlType
from halogend.engine.dequant import PLAIN, dequantise
from halogend.engine.device.staging import WeightStaging
from halogend.engine.embedding import Embedding
from halogend.engine.models.source import PairedHeads, TensorSource

_ROWS = 4096  # of a table that are decoded at a time


class DeviceSource:
    """A `TensorSource` over another, whose matrices are packed on the device already."""

    def __init__(self, source: TensorSource, staging: WeightStaging) -> None:
        self._source = source
        self._staging = staging

    def linear(self, names: Sequence[str], paired: PairedHeads | None = None) -> LinearWeight:
        return self._source.linear(names, paired)

    def vector(self, names: Sequence[str], paired: PairedHeads | None = None) -> Tensor:
        return self._staging.move(self._source.vector(names, paired))

    def norm(self, name: str) -> Tensor:
        return self._staging.move(self._source.norm(name))

    def matrix(self, name: str) -> Tensor:
        return self._staging.move(self._source.matrix(name))


class GatheredEmbedding:
    """A table of numbers [vocab, width] whose rows an operator of the device gathers."""

    def __init__(self, table: Tensor, embed: Embed) -> None:
        self._table = table
        self._embed = embed

    def __call__(self, tokens: Tensor) -> Tensor:
        """int64 [n] -> float32 [n, width]: NaN for a token outside the vocabulary."""
        return self._embed(self._table, None, tokens)


def gathered(table: Embedding, embed: Embed | None) -> Embedding | GatheredEmbedding:
    """By the operator, where there is one and the table is of numbers."""
    if embed is None or table.kind not in PLAIN:
        return table
    return GatheredEmbedding(table.raw.view(PLAIN[table.kind]), embed)


def moved_embedding(table: Embedding, staging: WeightStaging, dtype: torch.dtype) -> Embedding:
    """As it is stored where its rows are numbers; blocks are decoded, for a device decodes none: into float32 where
    products are in that `dtype`, else into bfloat16."""
    if table.kind in PLAIN:
        return Embedding(table.kind, staging.move(table.raw), table.width)
    dtype = torch.float32 if dtype == torch.float32 else torch.bfloat16
    vocab = len(table.raw)
    decoded = torch.empty(vocab, table.width, dtype=dtype)
    for first in range(0, vocab, _ROWS):
        rows = slice(first, first + _ROWS)
        dequantise(table.kind, table.raw[rows].contiguous(), decoded[rows])
    plain = GgmlType.BF16 if dtype == torch.bfloat16 else GgmlType.F32
    return Embedding(plain, staging.move(decoded.view(torch.uint8)), table.width)
