"""A step's rows on their way to a device, in one piece."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from halogen_kernels import Workspace
from torch import Tensor

from halogend.engine.batch import Batch, Rows, TableRows

_EVEN = 2  # numbers of eight bytes: every column starts at sixteen, where kernels want it


def send_rows(rows: Rows, slot_tokens: Tensor, workspace: Workspace) -> Batch:
    """`slot_tokens` is int64 [slots] on the device; nobody waits for what is in it."""
    columns = (rows.tokens, rows.positions, rows.sampled, rows.late_rows, rows.late_slots, *rows.slots)
    sent = workspace.send(torch.tensor([number for column in columns for number in _even(column)], dtype=torch.int64))
    tokens, positions, sampled, late_rows, late_slots, *slots = _parted(sent, [len(column) for column in columns])
    if rows.late_rows:
        tokens.index_copy_(0, late_rows, slot_tokens.index_select(0, late_slots))
    tables = tuple(TableRows(own, spans) for own, spans in zip(slots, rows.spans, strict=True))
    return Batch(tokens, positions, tables, sampled, rows.fresh_blocks)


def _even(column: Sequence[int]) -> Sequence[int]:
    return [*column, 0] if len(column) % _EVEN else column


def _parted(sent: Tensor, counts: Sequence[int]) -> list[Tensor]:
    parts = torch.split(sent, [-(-count // _EVEN) * _EVEN for count in counts])
    return [part[:count] for part, count in zip(parts, counts, strict=True)]
