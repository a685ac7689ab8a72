"""Triton's act(gate x) * (up x) of each weight format against float64 over the values that are held."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import Activation, WeightFormat, reference
from halogen_kernels.triton import targets
from halogen_kernels.triton.gated_linear import gated_linear
from halogen_kernels.triton.launching import last
from support.held_weights import ROUNDING, SUMS, assert_near, fresh, matrix, products
from torch import Tensor

FORMATS: list[WeightFormat] = ["plain", "int8", "fp8", "int4"]


def allowance(opened: tuple[Tensor, Tensor], passed: tuple[Tensor, Tensor], relative: float) -> Tensor:
    """Of a product of two, whose first steepens by less than 1.13 on its way through an activation."""
    return 1.13 * relative * (opened[1] * passed[0].abs() + opened[0].abs() * passed[1]) + relative**2 * (
        opened[1] * passed[1]
    )


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize(
    ("n", "dtype", "kind"),
    [
        (1, torch.bfloat16, "gelu_tanh"),
        (17, torch.bfloat16, "silu"),
        (1, torch.float16, "silu"),
        (5, torch.float16, "gelu_tanh"),
        (16, torch.float32, "gelu_tanh"),
    ],
    ids=str,
)
def test_against_float64(
    device: torch.device, weights: WeightFormat, n: int, dtype: torch.dtype, kind: Activation
) -> None:
    fresh()
    gate, up = (matrix(weights, (100, 160), dtype, device) for _ in range(2))
    x = torch.randn(n, 160).to(dtype).to(device)
    got = gated_linear(x, gate, up, kind)
    assert got.dtype == dtype
    variant = last()
    by_library = weights == "plain" and n > 16
    assert variant.op == ("activation" if by_library else "gated_linear")
    opened, passed = products(x, gate), products(x, up)
    exact = reference.activate(opened[0], kind) * passed[0]
    values_made = weights == "int4" and variant.constexprs.get("BLOCK_M", 0) > 1
    rounded = dtype != torch.float32 and (by_library or values_made)
    assert_near(got, exact, allowance(opened, passed, ROUNDING[dtype] + SUMS if rounded else SUMS))


@pytest.mark.parametrize(("weights", "target"), [(each, "sm_90") for each in FORMATS] + [("fp8", "gfx1151")])
def test_with_a_devices_block_sizes(device: torch.device, weights: WeightFormat, target: str) -> None:
    fresh()
    gate, up = (matrix(weights, (70, 192), torch.bfloat16, device) for _ in range(2))
    opened_by = []
    for n in (3, 40):
        x = torch.randn(n, 192).bfloat16().to(device)
        with targets.chosen(targets.named(target)):
            got = gated_linear(x, gate, up, "silu")
        opened_by.append(last().constexprs.get("BLOCK_M"))
        opened, passed = products(x, gate), products(x, up)
        exact = reference.activate(opened[0], "silu") * passed[0]
        assert_near(got, exact, allowance(opened, passed, 2.0**-8 + SUMS))
    assert opened_by == [16, None if weights == "plain" else 64]


@pytest.mark.parametrize("weights", ["plain", "int8", "fp8"])
def test_any_width(device: torch.device, weights: WeightFormat) -> None:
    """And with what is not a number beside x's rows."""
    fresh()
    gate, up = (matrix(weights, (21, 52), torch.float32, device) for _ in range(2))
    x = torch.full((9, 80), float("nan"), device=device)[:4, :52]
    x.copy_(torch.randn(4, 52))
    opened, passed = products(x, gate), products(x, up)
    exact = reference.activate(opened[0], "gelu_tanh") * passed[0]
    assert_near(gated_linear(x, gate, up, "gelu_tanh"), exact, allowance(opened, passed, SUMS))
