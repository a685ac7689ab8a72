"""Which backend runs: asked once, when a model is loaded."""

from __future__ import annotations

import torch

from halogen_kernels import reference
from halogen_kernels.cpu import table as cpu
from halogen_kernels.dequantised import Dequantised, with_products
from halogen_kernels.formats import WEIGHT_FORMATS, WeightFormat
from halogen_kernels.seam import Kernels

BACKENDS = ("cpu", "reference")


def select(backend: str, dtype: torch.dtype, *, flash_attention: bool, weights: WeightFormat = "plain") -> Kernels:
    """The operators of `backend` that compute in `dtype` with weights held in a format. Raises ValueError
    for a backend that is not in BACKENDS and a format that is not in WEIGHT_FORMATS. The reference
    writes scores out either way."""
    if weights not in WEIGHT_FORMATS:
        raise ValueError(f"no weight format {weights!r}; there are {', '.join(WEIGHT_FORMATS)}")
    if backend == "cpu":
        return cpu.table(dtype, flash_attention, weights)
    if backend == "reference":
        return _reference(dtype, weights)
    raise ValueError(f"no backend {backend!r}; there are {', '.join(BACKENDS)}")


def _reference(dtype: torch.dtype, weights: WeightFormat) -> Kernels:
    plain = reference.table()
    if weights == "plain":
        return plain
    products = Dequantised(dtype, weights)
    return with_products(plain, products, f"reference.{weights}", reference.make_mixture)
