"""Which sequences are attended to together, and their context gathered from the cache's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halogen_kernels.values import AttentionShape, Span

# A group costs about as much by existing as this many padding blocks cost in it, measured.
_GROUP_BLOCKS = 24
# A group's gathered context, about what a core's own cache holds: what is gathered is still there when it is used.
GROUP_VALUES = 1 << 20
# That of as many sequences as it takes for every thread to have a head: bounds the scratch memory. One sequence may
# exceed it.
_MOST_VALUES = 8 << 20
# From so many values on a context is read only once, from memory: one that lies in a row is used where it lies.
# A smaller one is gathered all the same, which brings it into the cache in the order in which memory is fastest.
IN_PLACE_VALUES = 4 << 20


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """`rows` is None when the group is the whole step, in order. `table` is [B * blocks], padded with
    block 0; `mask` is 0 or -inf, [B, 1, 1, blocks * T]. `place` is the first block of a context that is used
    where it lies, None if it is gathered: the numbers are the same."""

    rows: Tensor | None
    count: int
    table: Tensor
    mask: Tensor
    place: int | None = None


def group_by_length(
    spans: Sequence[Span], shape: AttentionShape, window: int | None, values: int = GROUP_VALUES
) -> list[list[Span]]:
    """Spans of one row, longest first in groups whose padding costs less than another group would and
    whose context has at most `values`, or as many as give every thread a head to work on."""
    if not spans:
        return []
    sizes = {span.row: _block_count(span, shape, window) for span in spans}
    groups: list[list[Span]] = []
    block_values = shape.block_tokens * shape.kv_width
    busy = -(-torch.get_num_threads() // shape.kv_heads)
    most = 0
    longest, padding = 0, 0
    for span in sorted(spans, key=lambda span: -sizes[span.row]):
        padding += longest - sizes[span.row]
        if not groups or padding > _GROUP_BLOCKS or len(groups[-1]) >= most:
            groups.append([])
            longest, padding = sizes[span.row], 0
            each = longest * block_values
            most = max(values // each, min(busy, _MOST_VALUES // each))
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
        None if whole else torch.tensor(chosen),
        len(spans),
        torch.tensor(table),
        mask.unsqueeze(1).unsqueeze(1),
        _place(table, shape) if len(spans) == 1 else None,
    )


def _place(table: list[int], shape: AttentionShape) -> int | None:
    """Where one context lies, if it is large and in a row."""
    if len(table) * shape.block_tokens * shape.kv_width < IN_PLACE_VALUES:
        return None
    return table[0] if table == list(range(table[0], table[0] + len(table))) else None


def first_block(span: Span, shape: AttentionShape, window: int | None) -> int:
    """The first block that holds something visible to the span's first row."""
    return 0 if window is None else max(0, span.start - window + 1) // shape.block_tokens


def _block_count(span: Span, shape: AttentionShape, window: int | None) -> int:
    return -(-span.end // shape.block_tokens) - first_block(span, shape, window)
