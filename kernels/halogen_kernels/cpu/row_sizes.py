"""With how many rows packed products run: few sizes, because oneDNN builds and keeps half a MiB of machine code
for every shape of a product that it has seen, which takes it two milliseconds.

    1 to 16 rows     as they are: decode steps, where a row more would be paid for
    more             four sizes an octave: 20, 24, 28, 32, 40, 48, ..., so at most a fifth of them is padding
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

_EXACT_ROWS = 16
_OCTAVE_BITS = 3  # the highest bits of a size that may differ: four sizes an octave


def padded_rows(rows: int) -> int:
    """The least size that holds `rows`."""
    if rows <= _EXACT_ROWS:
        return rows
    step = 1 << (rows - 1).bit_length() - _OCTAVE_BITS
    return -(-rows // step) * step


def row_sizes(most: int) -> tuple[int, ...]:
    """Every size that a product of 1 to `most` rows runs with, ascending."""
    return tuple(sorted({padded_rows(rows) for rows in range(1, most + 1)}))


def padded(x: Tensor) -> Tensor:
    """`x` [n, columns] with rows of zeros up to the next size."""
    missing = padded_rows(len(x)) - len(x)
    return F.pad(x, (0, 0, 0, missing)) if missing else x
