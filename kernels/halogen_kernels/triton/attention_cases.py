"""Arguments without memory, on the device "meta", that lead the attention launchers to each of their variants."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from halogen_kernels.triton.attention_plan import AttentionPlan, make_plan
from halogen_kernels.triton.chunked import CODED, ChunkedCache
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.values import AttentionShape, Span

META = torch.device("meta")
BLOCK_TOKENS = 16
HEADS, KV_HEADS = 4, 2
_FORMATS = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}


def caches(shapes: Shapes) -> Iterator[tuple[torch.dtype, ChunkedCache]]:
    """A compute dtype, and a cache that goes with it."""
    for head_dim, compute, held in product(shapes.head_dims, shapes.dtypes, shapes.kv_formats):
        dtype = _FORMATS.get(held, compute)
        addresses = torch.empty(4, dtype=torch.int64, device=META)
        scales = addresses if dtype in CODED else None
        yield compute, ChunkedCache(addresses, 1 << 10, BLOCK_TOKENS, KV_HEADS, head_dim, dtype, scales)


def attended(shapes: Shapes, count: int, block: int) -> Iterator[tuple[Tensor, ChunkedCache, AttentionPlan, Tensor]]:
    """Queries, cache, plan and result of a sequence of `count` positions in that block."""
    for (compute, cache), capped in product(caches(shapes), shapes.softcaps):
        shape = AttentionShape(HEADS, KV_HEADS, cache.head_dim, 1.0, BLOCK_TOKENS, 50.0 if capped else 0.0)
        plan = make_plan(shape, [Span(0, count, 0, [block])], None, cache.dtype, META)
        queries = torch.empty(count, HEADS, cache.head_dim, dtype=compute, device=META)
        yield queries, cache, plan, torch.empty(count, HEADS * cache.head_dim, dtype=compute, device=META)
