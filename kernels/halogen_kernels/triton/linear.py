"""Linear maps of one weight format as the seam has them: what packs a matrix, and what multiplies with it.

Products with plain weights are the vendor's library, through torch: there is no better one, of few rows or of many.
A bias is added by one more kernel there, to a product that is rounded; the kernels for quantised weights add it to
their sums. Logits of plain weights are rounded to the compute dtype first, as the CPU's are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogen_kernels.dequantised import LAYOUTS
from halogen_kernels.formats import WeightFormat
from halogen_kernels.seam import nothing_adopted
from halogen_kernels.triton.gated_linear import gated_linear
from halogen_kernels.triton.matrix import Matrix, adopt, matrix_of, pack
from halogen_kernels.triton.quantised_linear import quantised_linear
from halogen_kernels.values import Activation, LinearWeight, StoredPart

LIBRARY = "torch.linear"


class Products:
    """The operators for weights of one format, held on `device`; products are in `dtype`. Has no state of its own:
    several threads may pack and multiply."""

    def __init__(self, dtype: torch.dtype, weights: WeightFormat, device: torch.device) -> None:
        self._dtype = dtype
        self._weights: WeightFormat = weights
        self._device = device

    @property
    def takes(self) -> frozenset[str]:
        return frozenset() if self._weights == "plain" else frozenset([LAYOUTS[self._weights]])

    @property
    def names(self) -> dict[str, str]:
        own = f"triton.{self._weights}"
        return {"linear": LIBRARY if self._weights == "plain" else own, "gated_linear": own}

    def pack_linear(self, slices: Iterable[Tensor]) -> LinearWeight:
        matrix = pack(slices, self._weights, self._device)
        return self._weight(matrix, matrix.codes.dtype if self._weights == "plain" else self._dtype)

    def adopt_linear(self, parts: Sequence[StoredPart]) -> LinearWeight:
        if self._weights == "plain":
            return nothing_adopted(parts)
        return self._weight(adopt(parts, self._weights, self._device), self._dtype)

    def linear(self, x: Tensor, weight: LinearWeight, bias: Tensor | None = None) -> Tensor:
        matrix = matrix_of(weight)
        if matrix.format == "plain":
            product = F.linear(x, matrix.numbers)
            return product if bias is None else product.add_(bias)
        out = x.new_empty(len(x), matrix.rows)
        quantised_linear(x, matrix, out, bias)
        return out

    def logits(self, x: Tensor, weight: LinearWeight, out: Tensor) -> None:
        matrix = matrix_of(weight)
        if matrix.format == "plain":
            out.copy_(F.linear(x, matrix.numbers))
        else:
            quantised_linear(x, matrix, out)

    def gated_linear(self, x: Tensor, gate: LinearWeight, up: LinearWeight, activation: Activation) -> Tensor:
        return gated_linear(x, matrix_of(gate), matrix_of(up), activation)

    def _weight(self, matrix: Matrix, dtype: torch.dtype) -> LinearWeight:
        return LinearWeight((matrix,), matrix.rows, matrix.columns, dtype, matrix.nbytes)
