"""Arguments without memory, on the device "meta", that lead the launchers over matrices to each of their variants."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from halogen_kernels.triton import tuning
from halogen_kernels.triton.matrix import Matrix, imagined
from halogen_kernels.triton.shapes import Shapes

META = torch.device("meta")
ROWS = 64


def multiplied(op: str, shapes: Shapes, columns: int) -> Iterator[tuple[Tensor, Matrix]]:
    """x [n, columns] in each compute dtype, n of each class that the table of `op` makes, and a matrix [ROWS, columns]
    of each format."""
    for dtype, weights in product(shapes.dtypes, shapes.weight_formats):
        matrix = imagined(weights, ROWS, columns, dtype)
        for n in tuning.representatives(op, "rows"):
            yield torch.empty(n, columns, dtype=dtype, device=META), matrix
