"""int8 products in bfloat16 with torch's own kernel, which reads the codes as they are: one to sixteen rows
take a fraction of the time of widening the matrix first, and the sums are in float32 all the same.

It rounds the product before the scales are applied and the result after, where the shared path rounds once.
It reads columns by sixteen and past the end of others, so those take the shared path.
"""

# ruff: noqa: SLF001 (torch has no public name for the product)

from __future__ import annotations

import torch
from torch import Tensor

from halogen_kernels.dequantised import Dequantised
from halogen_kernels.values import LinearWeight

_COLUMNS_STEP = 16


def can_run(dtype: torch.dtype) -> bool:
    return dtype == torch.bfloat16


class Int8Packed(Dequantised):
    """The operators for int8 weights; scratch as in Dequantised."""

    def __init__(self) -> None:
        super().__init__(torch.bfloat16, "int8")

    def _multiply(self, x: Tensor, weight: LinearWeight, out: Tensor) -> None:
        if weight.columns % _COLUMNS_STEP:
            super()._multiply(x, weight, out)
            return
        x, done = x.contiguous(), 0
        for part in weight.parts:
            rows = len(part.codes)
            ones = torch.ones(rows, dtype=x.dtype)
            product = torch._weight_int8pack_mm(x, part.codes, ones)
            torch.mul(product, part.scales, out=out[:, done : done + rows])
            done += rows
