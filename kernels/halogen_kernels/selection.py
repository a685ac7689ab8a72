"""Which backend runs: asked once, when a model is loaded."""

from __future__ import annotations

import torch

from halogen_kernels import reference
from halogen_kernels.cpu import table as cpu
from halogen_kernels.seam import Kernels

BACKENDS = ("cpu", "reference")


def select(backend: str, dtype: torch.dtype, *, flash_attention: bool) -> Kernels:
    """The operators of `backend` for weights of `dtype`. Raises ValueError for a backend that is not
    in BACKENDS. The reference writes scores out either way."""
    if backend == "cpu":
        return cpu.table(dtype, flash_attention)
    if backend == "reference":
        return reference.table()
    raise ValueError(f"no backend {backend!r}; there are {', '.join(BACKENDS)}")
