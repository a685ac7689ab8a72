"""Which backend runs: asked once, when a model is loaded."""

from __future__ import annotations

import torch

from halogen_kernels import reference
from halogen_kernels.cpu import table as cpu
from halogen_kernels.dequantised import Dequantised, with_products
from halogen_kernels.formats import WEIGHT_FORMATS, WeightFormat
from halogen_kernels.seam import Kernels

BACKENDS = ("cpu", "reference", "triton")
_HOST = torch.device("cpu")


def select(
    backend: str,
    dtype: torch.dtype,
    *,
    flash_attention: bool,
    weights: WeightFormat = "plain",
    device: torch.device = _HOST,
) -> Kernels:
    """The operators of `backend` that compute in `dtype` on `device`, with weights held in a format. Raises ValueError
    for a backend that is not in BACKENDS or does not run on the device, and a format that is not in WEIGHT_FORMATS.
    The reference writes scores out either way; Triton's kernels do not, and run on the host in an interpreter."""
    if weights not in WEIGHT_FORMATS:
        raise ValueError(f"no weight format {weights!r}; there are {', '.join(WEIGHT_FORMATS)}")
    if backend == "triton":
        return _triton(dtype, weights, device, flash_attention=flash_attention)
    if backend not in BACKENDS:
        raise ValueError(f"no backend {backend!r}; there are {', '.join(BACKENDS)}")
    if device.type != "cpu":
        raise ValueError(f"the backend {backend!r} does not run on {device}; triton does")
    return cpu.table(dtype, flash_attention, weights) if backend == "cpu" else _reference(dtype, weights)


def _reference(dtype: torch.dtype, weights: WeightFormat) -> Kernels:
    plain = reference.table()
    if weights == "plain":
        return plain
    products = Dequantised(dtype, weights)
    return with_products(plain, products, f"reference.{weights}", reference.make_mixture)


def _triton(dtype: torch.dtype, weights: WeightFormat, device: torch.device, *, flash_attention: bool) -> Kernels:
    if not flash_attention:
        raise ValueError("the backend 'triton' has no attention but the fused one; cpu and reference have")
    try:
        from halogen_kernels.triton.table import table  # noqa: PLC0415 (imports Triton, for this backend only)
    except ModuleNotFoundError as error:
        raise ValueError(f"the backend 'triton' needs a package that is not installed: {error.name}") from error
    return table(dtype, weights, device)
