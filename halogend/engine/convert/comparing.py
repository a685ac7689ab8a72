"""Whether what was written is what the source has: some rows of every weight, decoded as an engine decodes them.

Bounds are those of the layouts, and wide: what they are to find is a row in another's place, not a rounding.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from halogend.checkpoint.errors import DIGEST_MISMATCH, CheckpointError
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.checkpoint.v2.entries import Entry
from halogend.checkpoint.v2.layout import GROUP_COLUMNS, ROW_FP8, ROW_INT8, TILED_INT4
from halogend.checkpoint.v2.weights import encoded_of
from halogend.checkpoint.v2.writer import Writer
from halogend.engine.codecs import decode_rows
from halogend.engine.convert.policy import Target
from halogend.engine.convert.restated import Restated

_SEED = 0
_TINY = 1e-7
_FP8_STEP = 2**-3  # between neighbours, of the value
_NUMBERS_STEP = 2**-7  # of bf16
_INT4_STEPS = 15


class _Written:
    """The `ByteSource` of what a writer has written."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def take(self, tensor: TensorInfo, start: int, nbytes: int) -> Tensor:
        return torch.frombuffer(bytearray(self._writer.read(tensor.name, start, nbytes)), dtype=torch.uint8)


def compare(writer: Writer, weights: Sequence[Target], source: Restated, path: Path) -> None:
    """Raises CheckpointError naming the first weight that is not the source's."""
    written = _Written(writer)
    for target in weights:
        entry = writer.entries[target.wanted.name]
        for first, count in _samples(entry, source.unit(target.source)):
            wanted = source.rows(target.source, first, count)
            found = torch.empty_like(wanted)
            decode_rows(encoded_of(entry), first, count, found, written)
            if not _is_near(entry.layout, found, wanted, source.importance(target.source)):
                what = f"rows {first} to {first + count - 1} of {entry.name!r} do not have the source's values"
                raise CheckpointError(DIGEST_MISMATCH, f"{path}: {what}; it was not written")


def _samples(entry: Entry, unit: int) -> Iterator[tuple[int, int]]:
    units = entry.rows // unit
    between = random.Random(f"{_SEED} {entry.name}").randrange(units)  # noqa: S311 (a sample, not a secret)
    for number in sorted({0, between, units - 1}):
        yield number * unit, unit


def _is_near(layout: str, found: Tensor, wanted: Tensor, importance: Tensor | None) -> bool:
    if layout == TILED_INT4:
        return _is_fitted(found, wanted, torch.ones(wanted.shape[1]) if importance is None else importance)
    error = (found - wanted).abs_()
    largest = wanted.abs().amax(1, keepdim=True)
    if layout == ROW_INT8:
        bound = largest / 127
    elif layout == ROW_FP8:
        bound = wanted.abs() * _FP8_STEP + largest * 2**-9
    else:
        bound = wanted.abs() * _NUMBERS_STEP
    return bool((error <= bound + _TINY).all())


def _is_fitted(found: Tensor, wanted: Tensor, importance: Tensor) -> bool:
    """A group is off by less than one step of its whole range in the mean, columns weighted as they are when codes
    are fitted: a column of no importance may be off by any number of steps."""
    groups = wanted.view(len(wanted), -1, GROUP_COLUMNS)
    share = importance.view(groups.shape[1:])
    error = ((found - wanted).view(groups.shape).square_().mul_(share).sum(2) / share.sum(1)).sqrt_()
    low, high = groups.aminmax(dim=2)
    return bool((error <= (high - low) / _INT4_STEPS + groups.abs().amax(2) * 2**-9 + _TINY).all())
