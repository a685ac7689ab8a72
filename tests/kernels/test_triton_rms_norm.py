"""Triton's norms against the reference in float64: odd widths, wide rows, rows apart from each other."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import NormWeight, reference
from halogen_kernels.triton import launching, tuning
from halogen_kernels.triton.rms_norm import add_rms_norm, norm_of_sum, pack_norm, rms_norm
from support.closeness import close

EPS = 1e-5
# One row, odd widths, a block's width and its neighbours, more rows than a program takes, wider than any block.
SIZES = [(1, 1), (3, 7), (5, 64), (70, 100), (2, 1024), (3, 1025), (1, 4096), (2, 20_001)]
DTYPES = [torch.bfloat16, torch.float16]


def exact_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return reference.rms_norm(x.double().cpu(), reference.pack_norm(weight.double(), EPS), torch.float64)


def packed(device: torch.device, *weights: torch.Tensor) -> list[NormWeight]:
    return [pack_norm(weight, EPS, device) for weight in weights]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rms_norm(dtype: torch.dtype, sizes: tuple[int, int], device: torch.device) -> None:
    n, width = sizes
    weight = torch.randn(width)
    (norm,) = packed(device, weight)
    for magnitude, in_dtype in ((1e-3, torch.float32), (1e3, torch.float32), (1.0, dtype)):
        x = (torch.randn(n, width) * magnitude).to(device, in_dtype)
        got = rms_norm(x, norm, dtype)
        assert (got.dtype, got.is_contiguous()) == (dtype, True)
        assert close(got, exact_norm(x, weight), dtype)
    ran = launching.last()
    assert (ran.op, ran.kernel) == ("rms_norm", "rms_norm_kernel")
    assert ran.constexprs["WHOLE"] == (width <= ran.constexprs["BLOCK"])
    assert not (ran.constexprs["WHOLE"] and width > 20_000)
    assert ran.constexprs["ALIGNED"] == (width % 16 == 0)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add_rms_norm(dtype: torch.dtype, sizes: tuple[int, int], device: torch.device) -> None:
    weight = torch.randn(sizes[1])
    delta = (torch.randn(sizes) * 3).to(device, dtype)
    residual = torch.randn(sizes, device=device)
    exact = exact_norm(delta, weight)
    summed = residual.double().cpu() + exact
    add_rms_norm(residual, delta, *packed(device, weight))
    assert close(residual, summed, torch.float32, size=float(exact.abs().max() + summed.abs().max()))
    assert launching.last().constexprs["ADDS"]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("inner", [False, True])
def test_norm_of_sum(inner: bool, sizes: tuple[int, int], device: torch.device) -> None:
    dtype = torch.bfloat16
    weights = torch.randn(2, sizes[1])
    norm, first = packed(device, *weights)
    delta = (torch.randn(sizes) * 3).to(device, dtype)
    residual = torch.randn(sizes, device=device)
    added = exact_norm(delta, weights[1]) if inner else delta.double().cpu()
    summed = residual.double().cpu() + added
    with launching.launched() as variants:
        got = norm_of_sum(residual, delta, norm, dtype, first if inner else None)
    assert close(residual, summed, torch.float32, size=float(added.abs().max() + summed.abs().max()))
    assert close(got, exact_norm(summed, weights[0]), dtype, steps=2)
    in_one = sizes[1] <= tuning.pick("rms_norm", width=sizes[1], aligned=sizes[1] % 16 == 0)["BLOCK"]
    separate = ["rms_norm_kernel"] * (2 if inner else 1)
    assert [variant.kernel for variant in variants] == (["norm_of_sum_kernel"] if in_one else separate)


def test_rows_may_lie_apart_and_what_is_between_them_stays(device: torch.device) -> None:
    wide = torch.randn(9, 300, device=device)
    weight = torch.randn(100)
    (norm,) = packed(device, weight)
    x, before = wide[:, 16:116], wide.clone()
    assert close(rms_norm(x, norm, torch.float16), exact_norm(x, weight), torch.float16)
    delta = torch.randn(9, 100, device=device).half()
    summed = x.double().cpu() + delta.double().cpu()
    got = norm_of_sum(x, delta, norm, torch.float16)
    assert close(got, exact_norm(summed, weight), torch.float16, steps=2)
    around = torch.ones(300, dtype=torch.bool, device=device)
    around[16:116] = False
    assert torch.equal(wide[:, around], before[:, around])


def test_zeros_have_a_norm_of_zero(device: torch.device) -> None:
    assert not rms_norm(torch.zeros(2, 8, device=device), *packed(device, torch.ones(8)), torch.bfloat16).any()
