"""How far a result may be from the one in float64."""

from __future__ import annotations

import torch


def close(
    got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, *, steps: float = 1.0, size: float | None = None
) -> bool:
    """Finite, and within `steps` roundings: to `dtype` of the largest value, and in float32 of `size`,
    the size that sums had before they cancelled (the largest value, unless given)."""
    assert got.shape == expected.shape
    got, expected = got.double().cpu(), expected.cpu()
    largest = float(expected.abs().max())
    rounding = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2 * largest
    allowed = steps * (rounding + 2.0**-20 * max(1e-6, size or largest))
    return bool(got.isfinite().all()) and float((got - expected).abs().max()) <= allowed
