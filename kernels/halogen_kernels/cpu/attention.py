"""Paged attention: blocks are gathered into scratch memory, then multiplied with at once.

Rows that are alone in their span (decode) are taken together: sequences of about the same length
form a group, padded with block 0 and masked. A long one whose blocks lie in a row is not gathered but read
where it lies. Spans of several rows (prompt chunks) run one by one.

    decode group     q [B, G, H/G, d]   K, V [B, G, L, d]        mask [B, 1, 1, L]
    prompt chunk     q [G, H/G, n, d]   K, V [G, (H/G), L, d]    mask [n, L] or causal

Scores without a soft cap are left to torch's fused product; those with one are written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halogen_kernels.cpu import sdpa, softcap
from halogen_kernels.cpu.groups import DecodeGroup, first_block, group_by_length, plan_group
from halogen_kernels.reference import visible
from halogen_kernels.values import AttentionShape, Span, Workspace


@dataclass(frozen=True, slots=True)
class Chunk:
    """A prompt's span. `table` [blocks] starts at position `base`, the first block anything is visible in.
    `mask` is 0 or -inf, [count, end - base], or None where plain causality says the same, and for a
    soft cap, which masks as it goes."""

    span: Span
    base: int
    table: Tensor
    mask: Tensor | None

    @property
    def rows(self) -> slice:
        return slice(self.span.row, self.span.row + self.span.count)


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    shape: AttentionShape
    window: int | None
    groups: tuple[DecodeGroup, ...]
    chunks: tuple[Chunk, ...]
    workspace: Workspace


def plan_attention(
    shape: AttentionShape, spans: Sequence[Span], window: int | None, dtype: torch.dtype, workspace: Workspace
) -> AttentionPlan:
    alone = [span for span in spans if span.count == 1]
    rows = sum(span.count for span in spans)
    mask_dtype = torch.float32 if shape.softcap else dtype
    groups = tuple(
        plan_group(shape, group, window, mask_dtype, rows) for group in group_by_length(alone, shape, window)
    )
    chunks = tuple(_plan_chunk(shape, span, window, dtype) for span in spans if span.count > 1)
    return AttentionPlan(shape, window, groups, chunks, workspace)


def attend(queries: Tensor, cache: Tensor, plan: AttentionPlan) -> Tensor:
    shape = plan.shape
    queries = queries.to(cache.dtype)
    if len(plan.groups) == 1 and plan.groups[0].rows is None:
        return _attend_group(queries, cache, plan.groups[0], plan)
    out = torch.empty(len(queries), shape.heads * shape.head_dim, dtype=cache.dtype)
    for group in plan.groups:
        if group.rows is not None:
            chosen = queries.index_select(0, group.rows)
            out.index_copy_(0, group.rows, _attend_group(chosen, cache, group, plan))
    for chunk in plan.chunks:
        out[chunk.rows] = _attend_chunk(queries[chunk.rows], cache, chunk, plan)
    return out


def _plan_chunk(shape: AttentionShape, span: Span, window: int | None, dtype: torch.dtype) -> Chunk:
    first = first_block(span, shape, window)
    table = torch.tensor(span.blocks[first : -(-span.end // shape.block_tokens)])
    base = first * shape.block_tokens
    mask = None
    if not shape.softcap and (span.start > 0 or (window is not None and span.end > window)):
        seen = visible(span, base, window)
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))
    return Chunk(span, base, table, mask)


def _gather(cache: Tensor, table: Tensor, plan: AttentionPlan) -> Tensor:
    out = plan.workspace.take("context", (len(table), cache.shape[1]), cache.dtype)
    return torch.index_select(cache, 0, table, out=out)


def _attend_group(queries: Tensor, cache: Tensor, group: DecodeGroup, plan: AttentionPlan) -> Tensor:
    shape = plan.shape
    if group.place is None:
        context = _gather(cache, group.table, plan)
    else:
        context = cache[group.place : group.place + len(group.table)]
    context = context.view(group.count, -1, 2, shape.kv_heads, shape.head_dim)
    grouped = queries.reshape(group.count, shape.kv_heads, shape.group, shape.head_dim)
    if shape.softcap:
        return softcap.attend_group(grouped, context, group.mask, shape, plan.workspace)
    return sdpa.attend_group(grouped, context, group.mask, shape)


def _attend_chunk(queries: Tensor, cache: Tensor, chunk: Chunk, plan: AttentionPlan) -> Tensor:
    shape, span = plan.shape, chunk.span
    context = _gather(cache, chunk.table, plan).view(-1, 2, shape.kv_heads, shape.head_dim)[: span.end - chunk.base]
    if shape.softcap:
        reach = softcap.Reach(span.start - chunk.base, plan.window)
        return softcap.attend_chunk(queries, context, reach, shape, plan.workspace)
    return sdpa.attend_chunk(queries, context, chunk.mask, shape)
