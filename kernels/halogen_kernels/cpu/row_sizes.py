"""With how many rows packed products run: few sizes, because oneDNN builds and keeps half a MiB of machine code
for every shape of a product that it has seen, which takes it two milliseconds.

    1 to 16 rows     as they are: decode steps, where a row more would be paid for
    more             four sizes an octave: 20, 24, 28, 32, 40, 48, ..., so at most a fifth of them is padding
    small matrices   powers of two: a row more costs less than its code, of which each thread count has its own
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

_EXACT_ROWS = 16
_OCTAVE_BITS = 3  # the highest bits of a size that may differ: four sizes an octave
_SMALL_VALUES = 1 << 15  # of a matrix that stays in a core's nearest caches


def padded_rows(rows: int, values: int) -> int:
    """The least size that holds `rows`, for a matrix of `values`."""
    if values <= _SMALL_VALUES:
        return 1 << (rows - 1).bit_length()
    if rows <= _EXACT_ROWS:
        return rows
    step = 1 << (rows - 1).bit_length() - _OCTAVE_BITS
    return -(-rows // step) * step


def row_sizes(most: int) -> tuple[int, ...]:
    """Every size that a product of 1 to `most` rows runs with, ascending; those of small matrices are among them."""
    return tuple(sorted({padded_rows(rows, _SMALL_VALUES + 1) for rows in range(1, most + 1)}))


def padded(x: Tensor, values: int) -> Tensor:
    """`x` [n, columns] with rows of zeros up to the next size for a matrix of `values`."""
    rows = x.shape[0]  # len() of a tensor is a function of Python's
    missing = padded_rows(rows, values) - rows
    return F.pad(x, (0, 0, 0, missing)) if missing else x
