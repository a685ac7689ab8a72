"""A chunked cache on a device in which every position that is no sequence's is NaN, and what attention over it is in
float64."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from halogen_kernels import AttentionShape, Span, Workspace, reference
from halogen_kernels.triton.chunked import CODED, ChunkedCache, over_chunks
from torch import Tensor

T = 16
CHUNK_BLOCKS = 16
CHUNKS = 7
RUN = 4
"""Blocks of a run: as many as a tile of 64 positions has."""

Layout = Literal["scattered", "runs"]


@dataclass
class PagedCase:
    """`values` float64 [blocks, T * 2 * G * d] is what the cache says; what it holds, `chunks` and `scales` keep."""

    shape: AttentionShape
    spans: list[Span]
    queries: Tensor
    cache: ChunkedCache
    values: Tensor
    chunks: list[Tensor | None]
    scales: list[Tensor | None]

    def forget(self, window: int | None) -> None:
        """Blocks that lie behind the window are taken out of the tables: 0, which is NaN here, is in their place."""
        for number, span in enumerate(self.spans):
            gone = 0 if window is None else max(0, span.start - window + 1) // T
            self.spans[number] = replace(span, blocks=[0] * gone + list(span.blocks[gone:]))

    def swap(self, one: int, other: int) -> None:
        """Two blocks of one chunk change places, in memory and in all tables."""
        chunk = self.chunks[one // CHUNK_BLOCKS]
        if chunk is None or one // CHUNK_BLOCKS != other // CHUNK_BLOCKS:
            raise ValueError(f"{one} and {other} are not in one chunk")
        places = [one % CHUNK_BLOCKS, other % CHUNK_BLOCKS]
        chunk[places] = chunk[places[::-1]]
        self.values[[one, other]] = self.values[[other, one]]
        renamed = {one: other, other: one}
        for number, span in enumerate(self.spans):
            self.spans[number] = replace(span, blocks=[renamed.get(block, block) for block in span.blocks])

    def expected(self, window: int | None) -> Tensor:
        """The reference in float64, [n, H * d]."""
        plan = reference.plan_attention(self.shape, self.spans, window, torch.float64, Workspace())
        return reference.attend(self.queries.cpu().double(), self.values, plan)


def make_case(
    dims: tuple[int, int, int],
    wanted: Sequence[tuple[int, int]],
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    compute: torch.dtype = torch.bfloat16,
    softcap: float = 0.0,
    layout: Layout = "scattered",
) -> PagedCase:
    """Sequences of (start, count) positions. The cache is in `dtype`, queries in `compute`; one chunk is not there."""
    generator = torch.Generator().manual_seed(random.getrandbits(30))
    heads, kv_heads, head_dim = dims
    shape = AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5, T, softcap)
    tables = _tables([-(-(start + count) // T) for start, count in wanted], layout, generator)
    values = torch.full((CHUNKS * CHUNK_BLOCKS, T, 2 * kv_heads, head_dim), float("nan"), dtype=torch.float64)
    spans, row = [], 0
    for (start, count), blocks in zip(wanted, tables, strict=True):
        positions = torch.arange(start + count)
        places = torch.tensor(blocks)[positions // T], positions % T
        values[places] = torch.randn(len(positions), 2 * kv_heads, head_dim, generator=generator).double()
        spans.append(Span(row, count, start, blocks))
        row += count
    held, scale = encoded(values, dtype)
    chunks, scales = _chunks(held, device), [] if scale is None else _chunks(scale, device)
    return PagedCase(
        shape,
        spans,
        torch.randn(row, heads, head_dim, generator=generator).to(device, compute),
        over_chunks(chunks, T, head_dim, scales),
        decoded(held, scale).flatten(1),
        chunks,
        scales,
    )


def empty_cache(
    kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
) -> tuple[ChunkedCache, list[Tensor | None], list[Tensor | None]]:
    """Nothing but NaN, or codes with scales that are NaN; its chunks, and those of scales."""
    values = torch.full((CHUNKS * CHUNK_BLOCKS, T, 2 * kv_heads, head_dim), float("nan"), dtype=torch.float64)
    held, scale = encoded(values, dtype)
    chunks, scales = _chunks(held, device), [] if scale is None else _chunks(scale, device)
    return over_chunks(chunks, T, head_dim, scales), chunks, scales


def read_back(chunks: Sequence[Tensor | None], scales: Sequence[Tensor | None], head_dim: int) -> Tensor:
    """What chunks say, float64 [blocks, T, 2 * G, d]; NaN for a chunk that is not there."""
    first = next(chunk for chunk in chunks if chunk is not None)
    missing = torch.full_like(first, 0 if scales else float("nan"))
    parts = [missing if chunk is None else chunk for chunk in chunks]
    held = torch.cat([part.cpu().view(CHUNK_BLOCKS, T, -1, head_dim) for part in parts])
    if not scales:
        return decoded(held, None)
    nothing = torch.full((CHUNK_BLOCKS, held[0, :, :, 0].numel()), float("nan"))
    flat = torch.cat([nothing if part is None else part.cpu() for part in scales])
    return decoded(held, flat.view(held.shape[:3]))


def encoded(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """float64 [..., d] as a cache in `dtype` holds it, with float32 scales [...] for codes."""
    if dtype not in CODED:
        return values.to(dtype), None
    scale = (values.abs().amax(-1) / (127 if dtype == torch.int8 else 448)).float()
    codes = values / scale.unsqueeze(-1)
    return (codes.round().nan_to_num(77) if dtype == torch.int8 else codes.float()).to(dtype), scale


def decoded(held: Tensor, scale: Tensor | None) -> Tensor:
    values = held.float().double()
    return values if scale is None else values * scale.double().unsqueeze(-1)


def _tables(counts: Sequence[int], layout: Layout, generator: torch.Generator) -> list[list[int]]:
    """Blocks outside the second chunk: each sequence has runs of its own, in any order, or such as begin none."""
    step = RUN if layout == "runs" else 1
    starts = [block for block in range(step, CHUNKS * CHUNK_BLOCKS, step) if block // CHUNK_BLOCKS != 1]
    if layout == "scattered":
        starts = [block for block in starts if block % RUN]
    order = torch.randperm(len(starts), generator=generator).tolist()
    free = iter([starts[place] for place in order])
    return [
        [start + offset for start, _ in zip(free, range(0, n, step), strict=False) for offset in range(step)][:n]
        for n in counts
    ]


def _chunks(values: Tensor, device: torch.device) -> list[Tensor | None]:
    chunks: list[Tensor | None] = [part.flatten(1).to(device) for part in values.split(CHUNK_BLOCKS)]
    chunks[1] = None
    return chunks
