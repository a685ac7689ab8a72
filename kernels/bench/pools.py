"""Caches as an engine would fill them, for the benches of attention: chunks of random keys and values, and where each
sequence's blocks lie in them, in runs of eight or anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from frame import Options
from halogen_kernels import AttentionShape, Span
from halogen_kernels.triton.chunked import CODED, ChunkedCache, over_chunks
from torch import Tensor

T = 16
RUN = 8
CHUNK_BLOCKS = 1 << 10

Layout = Literal["runs", "anywhere"]


@dataclass(frozen=True)
class Pool:
    """`memory` holds what the cache's addresses point at."""

    cache: ChunkedCache
    spans: list[Span]
    memory: tuple[Tensor, ...]


def attention_shape(heads: int, kv_heads: int, head_dim: int, softcap: float = 0.0) -> AttentionShape:
    return AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5, T, softcap)


def make_pool(
    options: Options,
    shape: AttentionShape,
    wanted: list[tuple[int, int]],
    dtype: torch.dtype | None = None,
    layout: Layout = "runs",
) -> Pool:
    """Of sequences of (start, count) positions each; `dtype` is the cache's, the compute dtype if it is not given."""
    held = options.dtype if dtype is None else dtype
    counts = [-(-(start + count) // (T * RUN)) * RUN for start, count in wanted]
    step = RUN if layout == "runs" else 1
    runs = torch.randperm(sum(counts) // step).unsqueeze(1) * step + torch.arange(step)
    tables = [part.tolist() for part in (runs.flatten() + RUN).split(counts)]
    chunks = [chunk_of(shape.kv_width, held, options.device) for _ in range(-(-(sum(counts) + RUN) // CHUNK_BLOCKS))]
    scales = [torch.rand(CHUNK_BLOCKS, T * 2 * shape.kv_heads, device=options.device) / 99 for _ in chunks]
    cache = over_chunks(chunks, T, shape.head_dim, scales if held in CODED else ())
    spans, row = [], 0
    for (start, count), blocks in zip(wanted, tables, strict=True):
        spans.append(Span(row, count, start, blocks))
        row += count
    return Pool(cache, spans, (*chunks, *scales))


def chunk_of(kv_width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    if dtype == torch.int8:
        return torch.randint(-127, 128, (CHUNK_BLOCKS, T * kv_width), dtype=dtype, device=device)
    return torch.randn(CHUNK_BLOCKS, T * kv_width, device=device).to(dtype)


def position_bytes(shape: AttentionShape, dtype: torch.dtype) -> int:
    """What a cache in `dtype` holds of a position, scales too."""
    return shape.kv_width * dtype.itemsize + (8 * shape.kv_heads if dtype in CODED else 0)
