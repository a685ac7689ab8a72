"""Paged attention: blocks are gathered into scratch memory, then one fused product over them.

Rows that are alone in their span (decode) are taken together: sequences of about the same length
form a group, padded with block 0 and masked. Spans of several rows (prompt chunks) run one by one.

    decode group     q [B, G, H/G, d]   K, V [B, G, L, d]        mask [B, 1, 1, L]
    prompt chunk     q [G, H/G, n, d]   K, V [G, (H/G), L, d]    mask [n, L] or causal
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogen_kernels.reference import visible
from halogen_kernels.seam import AttentionShape, Span, Workspace

# A group costs about as much by existing as this many padding blocks cost in it, measured.
_GROUP_BLOCKS = 24
# A group's gathered context: bounds the scratch memory, and what is gathered is still in the cache when it
# is used. One sequence may exceed it.
_GROUP_VALUES = 8 << 20


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """`rows` is None when the group is the whole step, in order. `table` is [B * blocks], padded with
    block 0; `mask` is 0 or -inf, [B, 1, 1, blocks * T]."""

    rows: Tensor | None
    count: int
    table: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class Chunk:
    """`table` [blocks] starts at the first block anything is visible in; `length` positions of it are
    used. `mask` is 0 or -inf, [count, length], or None where plain causality says the same."""

    rows: slice
    table: Tensor
    length: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class SdpaPlan:
    shape: AttentionShape
    groups: tuple[DecodeGroup, ...]
    chunks: tuple[Chunk, ...]
    workspace: Workspace


def plan_attention(
    shape: AttentionShape, spans: Sequence[Span], window: int | None, dtype: torch.dtype, workspace: Workspace
) -> SdpaPlan:
    alone = [span for span in spans if span.count == 1]
    rows = sum(span.count for span in spans)
    groups = tuple(_plan_group(shape, group, window, dtype, rows) for group in group_by_length(alone, shape, window))
    chunks = tuple(_plan_chunk(shape, span, window, dtype) for span in spans if span.count > 1)
    return SdpaPlan(shape, groups, chunks, workspace)


def group_by_length(spans: Sequence[Span], shape: AttentionShape, window: int | None) -> list[list[Span]]:
    """Spans of one row, longest first in groups whose padding costs less than another group would and
    whose context is not too large to be gathered at once."""
    if not spans:
        return []
    sizes = {span.row: _block_count(span, shape, window) for span in spans}
    groups: list[list[Span]] = []
    most_blocks = _GROUP_VALUES // (shape.block_tokens * shape.kv_width)
    longest, padding = 0, 0
    for span in sorted(spans, key=lambda span: -sizes[span.row]):
        padding += longest - sizes[span.row]
        if not groups or padding > _GROUP_BLOCKS or (len(groups[-1]) + 1) * longest > most_blocks:
            groups.append([])
            longest, padding = sizes[span.row], 0
        groups[-1].append(span)
    return [sorted(group, key=lambda span: span.row) for group in groups]


def attend(queries: Tensor, cache: Tensor, plan: SdpaPlan) -> Tensor:
    shape = plan.shape
    queries = queries.to(cache.dtype)
    if len(plan.groups) == 1 and plan.groups[0].rows is None:
        return _attend_group(queries, cache, plan.groups[0], plan)
    out = torch.empty(len(queries), shape.heads * shape.head_dim, dtype=cache.dtype)
    for group in plan.groups:
        chosen = queries if group.rows is None else queries.index_select(0, group.rows)
        result = _attend_group(chosen, cache, group, plan)
        if group.rows is None:
            return result
        out.index_copy_(0, group.rows, result)
    for chunk in plan.chunks:
        out[chunk.rows] = _attend_chunk(queries[chunk.rows], cache, chunk, plan)
    return out


def _first_block(span: Span, shape: AttentionShape, window: int | None) -> int:
    return 0 if window is None else max(0, span.start - window + 1) // shape.block_tokens


def _block_count(span: Span, shape: AttentionShape, window: int | None) -> int:
    return -(-span.end // shape.block_tokens) - _first_block(span, shape, window)


def _plan_group(
    shape: AttentionShape, spans: Sequence[Span], window: int | None, dtype: torch.dtype, rows: int
) -> DecodeGroup:
    blocks = max(_block_count(span, shape, window) for span in spans)
    table: list[int] = []
    firsts, lasts = [], []
    for span in spans:
        first = _first_block(span, shape, window)
        used = span.blocks[first : -(-span.end // shape.block_tokens)]
        table.extend(used)
        table.extend([0] * (blocks - len(used)))
        base = first * shape.block_tokens
        firsts.append(0 if window is None else max(0, span.start - window + 1) - base)
        lasts.append(span.start - base)
    places = torch.arange(blocks * shape.block_tokens)
    hidden = places > torch.tensor(lasts).unsqueeze(1)
    if window is not None:
        hidden |= places < torch.tensor(firsts).unsqueeze(1)
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    chosen = [span.row for span in spans]
    whole = chosen == list(range(rows))
    return DecodeGroup(
        None if whole else torch.tensor(chosen), len(spans), torch.tensor(table), mask.unsqueeze(1).unsqueeze(1)
    )


def _plan_chunk(shape: AttentionShape, span: Span, window: int | None, dtype: torch.dtype) -> Chunk:
    first = _first_block(span, shape, window)
    table = torch.tensor(span.blocks[first : -(-span.end // shape.block_tokens)])
    base = first * shape.block_tokens
    mask = None
    if span.start > 0 or (window is not None and span.end > window):
        seen = visible(span, base, window)
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))
    return Chunk(slice(span.row, span.row + span.count), table, span.end - base, mask)


def _gather(cache: Tensor, table: Tensor, plan: SdpaPlan) -> Tensor:
    out = plan.workspace.take("context", (len(table), cache.shape[1]), cache.dtype)
    return torch.index_select(cache, 0, table, out=out)


def _attend_group(queries: Tensor, cache: Tensor, group: DecodeGroup, plan: SdpaPlan) -> Tensor:
    shape = plan.shape
    context = _gather(cache, group.table, plan).view(group.count, -1, 2, shape.kv_heads, shape.head_dim)
    keys, values = context.permute(2, 0, 3, 1, 4).unbind()
    grouped = queries.reshape(group.count, shape.kv_heads, shape.group, shape.head_dim)
    result = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=group.mask, scale=shape.scale)
    return result.reshape(group.count, -1)


def _attend_chunk(queries: Tensor, cache: Tensor, chunk: Chunk, plan: SdpaPlan) -> Tensor:
    shape = plan.shape
    context = _gather(cache, chunk.table, plan).view(-1, 2, shape.kv_heads, 1, shape.head_dim)[: chunk.length]
    keys, values = context.permute(1, 2, 3, 0, 4).expand(-1, -1, shape.group, -1, -1).unbind()
    heads = queries.view(-1, shape.kv_heads, shape.group, shape.head_dim).permute(1, 2, 0, 3)
    result = F.scaled_dot_product_attention(
        heads, keys, values, attn_mask=chunk.mask, is_causal=chunk.mask is None, scale=shape.scale
    )
    return result.permute(2, 0, 1, 3).reshape(len(queries), -1)
