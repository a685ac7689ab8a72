"""The forms a matrix's weights are held in, and how many bytes each takes.

    plain   the compute dtype
    int8    a row: codes -127..127 and one float32 scale; value = scale * code
    fp8     a row: codes float8 e4m3fn and one float32 scale; value = scale * code
    int4    a row, for each 32 columns: codes 0..15, two a byte, a float16 scale and a float16 minimum;
            value = scale * code + minimum

Scale and minimum are float16, not bfloat16: eleven significant bits instead of eight, sources with 4-bit
codes have theirs in float16 too and so come back as they were, and weights do not need bfloat16's range.

Layouts say how the planes of such a matrix [rows, columns] lie in a file, so that they can be used there:

    r8.v1       int8   codes int8 [rows, columns], scales float32 [rows]
    f8.v1       fp8    codes float8 e4m3fn [rows, columns], scales float32 [rows]
    g32-a4.v1   int4   codes uint8 [tiles, groups, 16, block], scales, minima float16 [tiles, groups, block];
                       byte [t, g, j, r] holds column 32 g + j of row t * block + r in its low half, column
                       32 g + 16 + j in its high; rows past the last fill the last tile, and count for nothing
"""

from __future__ import annotations

from typing import Literal

import torch

WeightFormat = Literal["plain", "int8", "int4", "fp8"]
WEIGHT_FORMATS: tuple[WeightFormat, ...] = ("plain", "int8", "int4", "fp8")
INT8_ROWS = "r8.v1"
FP8_ROWS = "f8.v1"
INT4_TILES = "g32-a4.v1"

GROUP_COLUMNS = 32
_ROW_SCALE_BYTES = 4
_INT4_GROUP_BYTES = GROUP_COLUMNS // 2 + 2 + 2


def packed_bytes(rows: int, columns: int, dtype: torch.dtype, weights: WeightFormat) -> int:
    """Bytes of a matrix [rows, columns] in a format; `dtype` is the compute dtype.

    A backend may pad a plain matrix: `LinearWeight.nbytes` has what is held. Raises ValueError for
    columns that the format cannot hold, and for an unknown format.
    """
    if weights == "plain":
        return rows * columns * dtype.itemsize
    if weights in ("int8", "fp8"):
        return rows * (columns + _ROW_SCALE_BYTES)
    if weights == "int4":
        return rows * group_count(columns) * _INT4_GROUP_BYTES
    raise ValueError(f"no weight format {weights!r}; there are {', '.join(WEIGHT_FORMATS)}")


def group_count(columns: int) -> int:
    """Groups of a row in int4. Raises ValueError unless they are whole."""
    if columns % GROUP_COLUMNS:
        raise ValueError(f"int4 needs columns in groups of {GROUP_COLUMNS}, and {columns} is no multiple of it")
    return columns // GROUP_COLUMNS
