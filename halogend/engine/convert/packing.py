"""A slice of a weight's rows in the layout that it gets: the planes' parts, in their order."""

from __future__ import annotations

import torch
from halogen_kernels.quantise import pack_int8
from torch import Tensor

from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.v2.entries import Entry
from halogend.checkpoint.v2.layout import ROW, ROW_INT8, TILED_INT4
from halogend.engine.convert.four_bit import quantise, tiled
from halogend.engine.convert.restated import Restated

_NUMBERS = {PlainType.F32: torch.float32, PlainType.BF16: torch.bfloat16, PlainType.F16: torch.float16}
_FP8_MOST = 448.0  # of e4m3


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
    return _fp8(rows), False


def _numbers(rows: Tensor, dtype: torch.dtype) -> Tensor:
    values = rows.to(dtype)
    if not values.isfinite().all():
        raise ValueError("it has values that are not finite, or are not once they are rounded; bf16 has the range")
    return values


def _fp8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """A row's largest value is the largest of its codes."""
    scales = rows.abs().amax(1) / _FP8_MOST
    if not scales.isfinite().all():
        raise ValueError("fp8 needs weights that are finite, and some are not")
    steps = scales.masked_fill(scales == 0, 1.0).unsqueeze(1)
    return (rows / steps).to(torch.float8_e4m3fn), scales
