"""What a matrix of Triton's kernels holds, in float64, and how near a product must come to it."""

from __future__ import annotations

import random

import torch
from halogen_kernels import WeightFormat
from halogen_kernels.triton.matrix import Matrix, pack
from torch import Tensor

# Half of the step between numbers of a type, of the number.
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}
# Sums in float32 of what is multiplied exactly: of a product's size before terms cancelled.
SUMS = 2.0**-19


def fresh() -> None:
    """Other numbers in each run, those of the run's seed."""
    torch.manual_seed(random.getrandbits(32))


def matrix(weights: WeightFormat, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Matrix:
    rows, columns = shape
    source = torch.randn(rows, columns) / columns**0.5
    return pack([source.to(dtype) if weights == "plain" else source], weights, device)


def numbers(held: Matrix) -> Tensor:
    """Float64 [rows, columns] on the CPU, each as the format's definition says."""
    codes, scales, minima = (plane.cpu() for plane in held.planes)
    match held.format:
        case "plain":
            return codes[:, : held.columns].double()
        case "int8":
            return codes[:, : held.columns].double() * scales.double().unsqueeze(1)
        case "fp8":
            return codes.view(torch.float8_e4m3fn)[:, : held.columns].double() * scales.double().unsqueeze(1)
    halves = torch.stack((codes & 15, codes >> 4), 2).double()  # [tiles, groups, 2, 16, block]
    values = halves * scales.double()[:, :, None, None] + minima.double()[:, :, None, None]
    return values.flatten(1, 3).transpose(1, 2).flatten(0, 1)[: held.rows, : held.columns]


def products(x: Tensor, held: Matrix) -> tuple[Tensor, Tensor]:
    """x @ W.T in float64, and its size before terms cancel: |x| @ |W|.T."""
    wide, values = x.cpu().double(), numbers(held)
    return wide @ values.T, wide.abs() @ values.abs().T


def assert_near(got: Tensor, exact: Tensor, allowed: Tensor) -> None:
    """Each number within what is allowed for it, and a rounding to its own type."""
    assert got.shape == exact.shape
    assert bool(got.isfinite().all())
    excess = (got.cpu().double() - exact).abs() - allowed - ROUNDING[got.dtype] * exact.abs()
    assert float(excess.max()) <= 0, f"{int((excess > 0).sum())} of {excess.numel()} are off, by up to {excess.max()}"
