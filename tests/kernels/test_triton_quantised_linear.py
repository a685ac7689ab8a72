"""Triton's products with int8, fp8 and int4 weights against float64 over the values that are held."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import WeightFormat
from halogen_kernels.triton import targets
from halogen_kernels.triton.launching import Variant, launched
from halogen_kernels.triton.matrix import Matrix
from halogen_kernels.triton.quantised_linear import quantised_linear
from support.held_weights import ROUNDING, SUMS, assert_near, fresh, matrix, products
from torch import Tensor

QUANTISED: list[WeightFormat] = ["int8", "fp8", "int4"]
# The block sizes of the interpreter, or the device; of a target that knows float8, and of one that does not.
TARGETS = [None, "sm_90", "gfx942"]


def multiply(x: Tensor, held: Matrix, out: Tensor, bias: Tensor | None, target: str | None) -> list[Variant]:
    chosen = targets.current() if target is None else targets.named(target)
    with targets.chosen(chosen), launched() as variants:
        quantised_linear(x, held, out, bias)
    return variants


def allowed(weights: WeightFormat, dtype: torch.dtype, variants: list[Variant], size: Tensor) -> Tensor:
    """Values of int4 are rounded to x's type, but of one row; all other codes are exact in it."""
    rounded = weights == "int4" and variants[0].constexprs["BLOCK_M"] > 1 and dtype != torch.float32
    return (ROUNDING[dtype] + SUMS if rounded else SUMS) * size


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("weights", QUANTISED)
@pytest.mark.parametrize("n", [1, 3, 17])
def test_against_float64(device: torch.device, weights: WeightFormat, target: str | None, n: int) -> None:
    fresh()
    held = matrix(weights, (70, 160), torch.bfloat16, device)
    x = torch.randn(n, 160).bfloat16().to(device)
    out = torch.full((n, 70), float("nan"), device=device)
    variants = multiply(x, held, out, None, target)
    assert [(variant.op, variant.kernel) for variant in variants] == [("quantised_linear", "linear_kernel")]
    kind = "fp8_bits" if weights == "fp8" and not runs_native(target) else weights
    assert variants[0].constexprs["KIND"] == kind
    exact, size = products(x, held)
    assert_near(out, exact, allowed(weights, torch.bfloat16, variants, size))


@pytest.mark.parametrize("weights", QUANTISED)
@pytest.mark.parametrize(
    ("dtype", "n", "shape"),
    [(torch.bfloat16, 1, (1, 32)), (torch.float16, 5, (300, 96)), (torch.float32, 2, (40, 576))],
    ids=str,
)
def test_in_each_type(
    device: torch.device, weights: WeightFormat, dtype: torch.dtype, n: int, shape: tuple[int, int]
) -> None:
    fresh()
    rows, columns = shape
    held = matrix(weights, (rows, columns), dtype, device)
    x = torch.randn(n, columns).to(dtype).to(device)
    out = torch.full((n, rows), float("nan"), dtype=dtype, device=device)
    variants = multiply(x, held, out, None, None)
    exact, size = products(x, held)
    assert_near(out, exact, allowed(weights, dtype, variants, size))


def runs_native(target: str | None) -> bool:
    return (targets.current() if target is None else targets.named(target)).native_fp8


@pytest.mark.parametrize("columns", [7, 100])
@pytest.mark.parametrize("weights", ["int8", "fp8"])
def test_any_width(device: torch.device, weights: WeightFormat, columns: int) -> None:
    fresh()
    held = matrix(weights, (40, columns), torch.bfloat16, device)
    x = torch.randn(5, columns).bfloat16().to(device)
    out = torch.empty(5, 40, dtype=torch.float32, device=device)
    multiply(x, held, out, None, None)
    exact, size = products(x, held)
    assert_near(out, exact, SUMS * size)


@pytest.mark.parametrize(("n", "weights"), [(1, "int4"), (1, "fp8"), (5, "int8")])
def test_few_rows_of_a_wide_matrix_are_summed_in_parts(device: torch.device, weights: WeightFormat, n: int) -> None:
    """With a bias, which is added once."""
    fresh()
    held = matrix(weights, (40, 4096 + 32), torch.bfloat16, device)
    x = torch.randn(n, 4096 + 32).bfloat16().to(device)
    bias = torch.randn(40, device=device)
    exact, size = products(x, held)
    for out_dtype in (torch.bfloat16, torch.float32):
        out = torch.empty(n, 40, dtype=out_dtype, device=device)
        variants = multiply(x, held, out, bias, "sm_90")
        assert [variant.kernel for variant in variants] == ["linear_kernel", "add_parts_kernel"]
        assert_near(out, exact + bias.cpu().double(), SUMS * (size + bias.cpu().abs()))


@pytest.mark.parametrize(("bias_dtype", "n"), [(torch.float32, 2), (torch.bfloat16, 40)], ids=str)
def test_a_bias_is_added_before_rounding(device: torch.device, bias_dtype: torch.dtype, n: int) -> None:
    fresh()
    held = matrix("int8", (50, 64), torch.bfloat16, device)
    x = torch.randn(n, 64).bfloat16().to(device)
    bias = (torch.randn(50) * 3).to(bias_dtype).to(device)
    out = torch.empty(n, 50, dtype=torch.bfloat16, device=device)
    variants = multiply(x, held, out, bias, None)
    assert [variant.kernel for variant in variants] == ["linear_kernel"]
    exact, size = products(x, held)
    assert_near(out, exact + bias.cpu().double(), SUMS * (size + bias.cpu().abs()))


@pytest.mark.parametrize(("n", "target"), [(1, None), (3, "sm_90"), (33, "sm_90")])
@pytest.mark.parametrize("weights", QUANTISED)
def test_what_lies_around_is_neither_read_nor_written(
    device: torch.device, weights: WeightFormat, n: int, target: str | None
) -> None:
    """Rows and columns past x's hold what is not a number; past the result nothing changes."""
    fresh()
    held = matrix(weights, (45, 64), torch.bfloat16, device)
    around = torch.full((n + 9, 64 + 48), float("nan"), dtype=torch.bfloat16, device=device)
    x = around[:n, :64]
    x.copy_(torch.randn(n, 64))
    whole = torch.full((n + 5, 45 + 7), -7.0, device=device)
    multiply(x, held, whole[:n, :45], None, target)
    exact, size = products(x, held)
    assert_near(whole[:n, :45], exact, (2.0**-8 + SUMS) * size)
    assert bool((whole[n:] == -7).all())
    assert bool((whole[:, 45:] == -7).all())


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_every_fp8_code_is_the_number_that_it_stands_for(device: torch.device, target: str) -> None:
    """By integer arithmetic and by the type's own conversion; the two codes of what is not a number are left out."""
    bits = torch.arange(256, dtype=torch.uint8)
    bits = bits[(bits & 0x7F) != 0x7F][:240]
    codes = bits.view(15, 16).to(device)
    held = Matrix("fp8", codes, torch.ones(15, device=device), codes, 15, 16)
    out = torch.empty(16, 15, device=device)
    variants = multiply(torch.eye(16, dtype=torch.bfloat16, device=device), held, out, None, target)
    assert variants[0].constexprs["KIND"] == ("fp8" if target == "sm_90" else "fp8_bits")
    assert torch.equal(out.cpu(), bits.view(torch.float8_e4m3fn).float().view(15, 16).T)
