"""Which sequences are attended to together, and their context gathered from the cache's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halogen_kernels.values import AttentionShape, Span

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


def plan_group(
    shape: AttentionShape, spans: Sequence[Span], window: int | None, dtype: torch.dtype, rows: int
) -> DecodeGroup:
    """For spans of one row each, in a step of `rows` rows; the mask is in `dtype`."""
    blocks = max(_block_count(span, shape, window) for span in spans)
    table: list[int] = []
    firsts, lasts = [], []
    for span in spans:
        first = first_block(span, shape, window)
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


def first_block(span: Span, shape: AttentionShape, window: int | None) -> int:
    """The first block that holds something visible to the span's first row."""
    return 0 if window is None else max(0, span.start - window + 1) // shape.block_tokens


def _block_count(span: Span, shape: AttentionShape, window: int | None) -> int:
    return -(-span.end // shape.block_tokens) - first_block(span, shape, window)
