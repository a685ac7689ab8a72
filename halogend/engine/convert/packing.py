"""A slice of a weight's rows in the layout that it gets: the planes' parts, in their order."""

from __future__ import annotations

import torch
from halogen_kernels.quantise import pack_fp8, pack_int8
from torch import Tensor

from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.v2.entries import Entry
from halogend.checkpoint.v2.layout import ROW, ROW_INT8, TILED_INT4
from halogend.engine.convert.four_bit import quantise, tiled
from halogend.engine.convert.restated import Restated

_NUMBERS = {PlainType.F32: torch.float32, PlainType.BF16: torch.bfloat16, PlainType.F16: torch.float16}


def packed(entry: Entry, name: str, first: int, count: int, source: Restated) -> tuple[tuple[Tensor, ...], bool]:
    """Rows `first` to `first + count - 1` of the source's weight `name`, laid out as `entry` says, and whether the
    source's own codes were kept. Raises CheckpointError, and ValueError for values that the layout cannot hold."""
    if entry.layout == TILED_INT4:
        groups = source.groups(name, first, count)
        if groups is not None:
            return tiled(groups, entry.block), True
        return tiled(quantise(source.rows(name, first, count), source.importance(name)), entry.block), False
    rows = source.rows(name, first, count)
    if entry.layout == ROW:
        return (_numbers(rows, _NUMBERS[entry.dtype]),), False
    if entry.layout == ROW_INT8:
        part = pack_int8(rows)
        return (part.codes, part.scales), False
    scaled = pack_fp8(rows)
    return (scaled.codes, scaled.scales), False


def _numbers(rows: Tensor, dtype: torch.dtype) -> Tensor:
    values = rows.to(dtype)
    if not values.isfinite().all():
        raise ValueError("it has values that are not finite, or are not once they are rounded; bf16 has the range")
    return values
