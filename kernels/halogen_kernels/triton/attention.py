"""Paged attention as the seam has it: plans, and the kernels that a plan calls for.

A step's prompt chunks and its single positions run in kernels of their own. Must never know which blocks are whose
but by a plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from halogen_kernels.triton.attention_plan import AttentionPlan, make_plan
from halogen_kernels.triton.chunked import CODED, ChunkedCache
from halogen_kernels.triton.paged_decode import paged_decode
from halogen_kernels.triton.paged_prefill import paged_prefill
from halogen_kernels.values import AttentionShape, Span, Workspace

NAMES = {
    "write_kv": "triton.write_kv",
    "attention_prefill": "triton.paged_prefill",
    "attention_decode": "triton.paged_decode",
}
"""What status says of these operators."""


def plan_attention(
    shape: AttentionShape, spans: Sequence[Span], window: int | None, dtype: torch.dtype, workspace: Workspace
) -> AttentionPlan:
    """As the seam's, on the workspace's device. Nothing of it is used: there, torch's own allocator uses memory
    again. For a plan that a captured graph may read, see `attention_plan.FixedDecode`."""
    return make_plan(shape, spans, window, dtype, workspace.device)


def attend(queries: Tensor, cache: ChunkedCache, plan: AttentionPlan) -> Tensor:
    """As the seam's: [n, H * d] in the cache's dtype, or in the queries' where the cache holds codes."""
    count, heads, head_dim = queries.shape
    if queries.stride()[1:] != (head_dim, 1) or queries.stride(0) % head_dim:
        queries = queries.contiguous()
    dtype = queries.dtype if cache.dtype in CODED else cache.dtype
    out = torch.empty(count, heads * head_dim, dtype=dtype, device=queries.device)
    paged_prefill(queries, cache, plan, out)
    paged_decode(queries, cache, plan, out)
    return out
