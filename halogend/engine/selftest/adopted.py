"""Products with matrices that are used where they lie, as a v2 checkpoint has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from halogen_kernels import FP8_ROWS, INT4_TILES, INT8_ROWS, LinearWeight, StoredPart, WeightFormat, reference
from halogen_kernels.quantise import pack_fp8, pack_int8, pack_tiles
from torch import Tensor

from halogend.engine.selftest.products import mixtures, product, steps
from halogend.engine.selftest.subject import Result, Subject

_BLOCKS: Mapping[WeightFormat, tuple[int, ...]] = MappingProxyType({"int8": (0,), "fp8": (0,), "int4": (32, 16)})
"""Rows of a tile: those that files have, and others. Formats of whole rows have none."""
_LAST_ROWS = 9


def adopted(subject: Subject) -> Iterator[Result]:
    """Two below each other, whose rows do not fill their tiles; of backends that use such matrices."""
    if not subject.kernels.takes:
        return
    columns, rows = subject.widths[0]
    for block in _BLOCKS[subject.weights]:
        files = _Files(subject, block)
        lying = "adopted" + (f" in tiles of {block}" if block else "")
        weight, values = files.hold(*(subject.random(count, columns) / 8 for count in (rows - _LAST_ROWS, _LAST_ROWS)))
        for count in subject.row_counts:
            x, case = subject.there(subject.random(count, columns)), f"{lying}, {count} x {columns} -> {rows}"
            exact, size = product(x, values)
            got = subject.kernels.linear(x, weight)
            yield subject.judge("linear", case, got, exact, steps=steps(subject), size=size)
            gated = reference.activate(exact, "silu") * exact
            got = subject.kernels.gated_linear(x, weight, weight, "silu")
            yield subject.judge("gated_linear", case, got, gated, steps=4, size=size * size)
        yield from mixtures(subject, files.hold, f"{lying}, ")


@dataclass(frozen=True, slots=True)
class _Files:
    """Matrices as files have them, in the subject's format."""

    subject: Subject
    block: int

    def hold(self, *matrices: Tensor) -> tuple[LinearWeight, Tensor]:
        """These below each other: as the backend uses them, and what they say in float64 [rows, columns]."""
        stored = [self._stored(matrix) for matrix in matrices]
        there = [
            StoredPart(
                part.layout,
                part.rows,
                part.columns,
                {name: plane.to(self.subject.device) for name, plane in part.planes.items()},
            )
            for part in stored
        ]
        return self.subject.kernels.adopt_linear(there), torch.cat([_numbers(part) for part in stored])

    def _stored(self, matrix: Tensor) -> StoredPart:
        rows, columns = matrix.shape
        if self.subject.weights == "int4":
            tiles = pack_tiles(matrix, self.block)
            planes = {"codes": tiles.codes, "scales": tiles.scales, "minima": tiles.minima}
            return StoredPart(INT4_TILES, rows, columns, planes)
        is_int8 = self.subject.weights == "int8"
        part = pack_int8(matrix) if is_int8 else pack_fp8(matrix)
        planes = {"codes": part.codes, "scales": part.scales}
        return StoredPart(INT8_ROWS if is_int8 else FP8_ROWS, rows, columns, planes)


def _numbers(part: StoredPart) -> Tensor:
    """As the layouts of `halogen_kernels.formats` are defined."""
    codes, scales = part.planes["codes"], part.planes["scales"].double()
    if part.layout != INT4_TILES:
        return codes.double() * scales.unsqueeze(1)
    groups = torch.cat([codes & 15, codes >> 4], dim=2).double()
    values = groups * scales.unsqueeze(2) + part.planes["minima"].double().unsqueeze(2)
    return values.permute(0, 3, 1, 2).flatten(2).flatten(0, 1)[: part.rows]
