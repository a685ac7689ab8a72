"""How a tensor's bytes lie: the layout ids, and the planes that each puts a tensor into.

    row          numbers, row by row
    r8.v1        int8 codes [rows, columns], float32 scales [rows]           value = scale * code
    f8.v1        float8 e4m3 codes [rows, columns], float32 scales [rows]    value = scale * code
    g32-a4.v1    tiles of `block` rows, groups of 32 columns                 value = scale * code + minimum
                 codes uint8 [tiles, groups, 16, block], scales and minima float16 [tiles, groups, block]
                 byte [t, g, j, r] holds column 32 g + j of row t * block + r in its low half, and
                 column 32 g + 16 + j in its high half; rows past the last are zeros
    bytes        anything; no tensor

A plane starts at a multiple of 64 bytes in its tensor, a tensor at one of 4096 in its file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from halogend.checkpoint.errors import shown
from halogend.checkpoint.plain_types import PlainType

TENSOR_ALIGNMENT = 4096
PLANE_ALIGNMENT = 64
GROUP_COLUMNS = 32
DEFAULT_BLOCK = 32
MOST_BLOCK = 4096  # rows
ROW, ROW_INT8, ROW_FP8, TILED_INT4, BYTES = "row", "r8.v1", "f8.v1", "g32-a4.v1", "bytes"


@dataclass(frozen=True, slots=True)
class Layout:
    """`dtypes` are those that an entry of it may name: of the numbers, or of the codes. A weight has
    one of the `ranks` of dimensions. `column_unit`: columns that cannot be parted."""

    id: str
    dtypes: frozenset[PlainType]
    ranks: tuple[int, ...]
    column_unit: int = 1
    is_tiled: bool = False


@dataclass(frozen=True, slots=True)
class Plane:
    """One array of a tensor, row-major; `offset` is from the tensor's start."""

    name: str
    dtype: PlainType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        each.id: each
        for each in (
            Layout(ROW, frozenset({PlainType.F32, PlainType.F16, PlainType.BF16}), (1, 2)),
            Layout(ROW_INT8, frozenset({PlainType.I8}), (2,)),
            Layout(ROW_FP8, frozenset({PlainType.F8_E4M3}), (2,)),
            Layout(TILED_INT4, frozenset({PlainType.U8}), (2,), GROUP_COLUMNS, is_tiled=True),
            Layout(BYTES, frozenset({PlainType.U8}), (1,)),
        )
    }
)


def planes(layout: str, dtype: PlainType, shape: Sequence[int], block: int) -> tuple[Plane, ...]:
    """The planes of a tensor of `shape` ([rows, columns] or [length]) in order. `block` is the rows of a
    tile where the layout is tiled, else 1. Raises ValueError with a sentence's end for what no tensor of
    the layout can be."""
    return _planes(layout, dtype, tuple(shape), block)


@lru_cache(maxsize=256)  # experts are many and alike
def _planes(layout: str, dtype: PlainType, shape: tuple[int, ...], block: int) -> tuple[Plane, ...]:
    known = LAYOUTS.get(layout)
    if known is None:
        raise ValueError(f"has the unknown layout {shown(layout)}; known are {', '.join(LAYOUTS)}")
    _check(known, dtype, shape, block)
    if known.id in (ROW, BYTES):
        return _stacked(("values", dtype, shape))
    rows, columns = shape
    if known.id in (ROW_INT8, ROW_FP8):
        return _stacked(("codes", dtype, (rows, columns)), ("scales", PlainType.F32, (rows,)))
    tiles, groups = -(-rows // block), columns // GROUP_COLUMNS
    constants = (tiles, groups, block)
    return _stacked(
        ("codes", dtype, (tiles, groups, GROUP_COLUMNS // 2, block)),
        ("scales", PlainType.F16, constants),
        ("minima", PlainType.F16, constants),
    )


def planes_bytes(parts: Sequence[Plane]) -> int:
    """What a tensor of these planes takes."""
    return parts[-1].offset + parts[-1].nbytes


def aligned(position: int, alignment: int = TENSOR_ALIGNMENT) -> int:
    """The next multiple."""
    return -(-position // alignment) * alignment


def _check(layout: Layout, dtype: PlainType, shape: Sequence[int], block: int) -> None:
    if dtype not in layout.dtypes:
        known = ", ".join(sorted(each.label for each in layout.dtypes))
        raise ValueError(f"has the dtype {dtype.label}; layout {layout.id} takes {known}")
    if len(shape) not in layout.ranks:
        raise ValueError(f"has {len(shape)} dimensions, which layout {layout.id} does not take")
    if min(shape) < 1:
        raise ValueError("has a dimension of 0")
    if shape[-1] % layout.column_unit:
        raise ValueError(f"has {shape[-1]} columns; layout {layout.id} takes multiples of {layout.column_unit}")
    if not (1 <= block <= MOST_BLOCK if layout.is_tiled else block == 1):
        wanted = f"1 to {MOST_BLOCK} are" if layout.is_tiled else "1 is"
        raise ValueError(f"has blocks of {block} rows; {wanted} possible with layout {layout.id}")


def _stacked(*parts: tuple[str, PlainType, tuple[int, ...]]) -> tuple[Plane, ...]:
    found, position = [], 0
    for name, dtype, shape in parts:
        position = aligned(position, PLANE_ALIGNMENT)
        nbytes = math.prod(shape) * dtype.block_bytes
        found.append(Plane(name, dtype, shape, position, nbytes))
        position += nbytes
    return tuple(found)
