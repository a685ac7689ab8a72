"""Triton's operators over matrices as the seam has them: packing, adopting, and products of each format."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from halogen_kernels import FP8_ROWS, INT4_TILES, INT8_ROWS, StoredPart, WeightFormat, packed_bytes, reference
from halogen_kernels.quantise import pack_fp8, pack_int8, pack_tiles
from halogen_kernels.triton.launching import launched
from halogen_kernels.triton.linear import Products
from halogen_kernels.triton.matrix import matrix_of
from support.held_weights import ROUNDING, SUMS, assert_near, fresh, numbers, products
from torch import Tensor

FORMATS: list[WeightFormat] = ["plain", "int8", "fp8", "int4"]
LAYOUTS: dict[WeightFormat, str] = {"int8": INT8_ROWS, "fp8": FP8_ROWS, "int4": INT4_TILES}


def store(weights: WeightFormat, source: Tensor, block: int = 32) -> StoredPart:
    rows, columns = source.shape
    if weights == "int4":
        tiles = pack_tiles(source, block)
        planes = {"codes": tiles.codes, "scales": tiles.scales, "minima": tiles.minima}
    else:
        part = pack_int8(source) if weights == "int8" else pack_fp8(source)
        planes = {"codes": part.codes, "scales": part.scales}
    return StoredPart(LAYOUTS[weights], rows, columns, planes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("weights", FORMATS)
def test_linear_logits_and_gated_linear(device: torch.device, weights: WeightFormat, dtype: torch.dtype) -> None:
    fresh()
    kernels = Products(dtype, weights, device)
    source = torch.randn(75, 96) / 10
    weight = kernels.pack_linear([source.to(dtype) if weights == "plain" else source])
    assert (weight.rows, weight.columns, weight.dtype) == (75, 96, dtype)
    x, bias = torch.randn(3, 96).to(dtype).to(device), torch.randn(75, device=device)
    exact, size = products(x, matrix_of(weight))
    slack = (ROUNDING[dtype] + SUMS) * size
    with launched() as variants:
        got = kernels.linear(x, weight)
    assert (variants == []) == (kernels.names["linear"] == "torch.linear")
    assert_near(got, exact, slack)
    once_more = slack + ROUNDING[dtype] * exact.abs()
    assert_near(kernels.linear(x, weight, bias), exact + bias.cpu().double(), once_more)
    out = torch.full((3, 75), float("nan"), device=device)
    kernels.logits(x, weight, out)
    assert_near(out, exact, once_more)
    gated = kernels.gated_linear(x, weight, weight, "silu")
    expected = reference.activate(exact, "silu") * exact
    relative = ROUNDING[dtype] + SUMS
    assert_near(gated, expected, (2.3 * size * exact.abs() + size * size * relative) * relative)


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("cuts", [[75], [32, 43], [5, 30, 40], [1] * 75], ids=str)
def test_packed_in_slices(device: torch.device, weights: WeightFormat, cuts: list[int]) -> None:
    """A caller fills one buffer again and again; what is held does not depend on how it was cut."""
    fresh()
    source = torch.randn(75, 64)
    buffer = torch.empty(75, 64)
    kernels = Products(torch.float32, weights, device)

    def slices() -> object:
        first = 0
        for count in cuts:
            buffer[:count] = source[first : first + count]
            yield buffer[:count]
            first += count
            buffer.fill_(float("nan"))

    whole, cut = (matrix_of(kernels.pack_linear(rows)) for rows in ([source], slices()))
    assert cut.codes.device.type == device.type
    assert torch.equal(numbers(cut), numbers(whole))
    assert (cut.rows, cut.columns) == (75, 64)


@pytest.mark.parametrize("weights", LAYOUTS)
def test_one_matrix_is_used_where_it_lies(device: torch.device, weights: WeightFormat) -> None:
    stored = store(weights, torch.randn(70, 64).to(device))
    weight = Products(torch.bfloat16, weights, device).adopt_linear([stored])
    held = {plane.data_ptr() for plane in matrix_of(weight).planes}
    assert held == {plane.data_ptr() for plane in stored.planes.values()}
    assert weight.nbytes == sum(plane.nbytes for plane in stored.planes.values())


@pytest.mark.parametrize("weights", LAYOUTS)
@pytest.mark.parametrize("block", [1, 16, 32, 64])
@pytest.mark.parametrize("rows", [[64, 32, 33], [5, 31]], ids=str)
def test_adopted_are_the_numbers_of_the_parts(
    device: torch.device, weights: WeightFormat, block: int, rows: list[int]
) -> None:
    fresh()
    sources = [torch.randn(count, 96) for count in rows]
    kernels = Products(torch.float32, weights, device)
    assert kernels.takes == {LAYOUTS[weights]}
    weight = kernels.adopt_linear([store(weights, source.to(device), block) for source in sources])
    packed = kernels.pack_linear([torch.cat(sources)])
    assert (weight.rows, weight.columns) == (sum(rows), 96)
    assert torch.equal(numbers(matrix_of(weight)), numbers(matrix_of(packed)))


@pytest.mark.parametrize("weights", FORMATS)
def test_bytes_are_those_of_the_format(device: torch.device, weights: WeightFormat) -> None:
    weight = Products(torch.bfloat16, weights, device).pack_linear([torch.randn(64, 96).bfloat16()])
    assert weight.nbytes == packed_bytes(64, 96, torch.bfloat16, weights)


def test_a_width_that_is_no_multiple_of_16_is_padded(device: torch.device) -> None:
    kernels = Products(torch.float32, "int8", device)
    weight = kernels.adopt_linear([store("int8", torch.randn(8, 20).to(device))])
    assert weight.columns == 20
    assert weight.nbytes == 8 * (32 + 4)
    assert not matrix_of(weight).codes[:, 20:].any()


def refused(kernels: Products, *parts: StoredPart) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        kernels.adopt_linear(parts)
    return str(caught.value)


@pytest.mark.parametrize("weights", LAYOUTS)
def test_what_is_not_as_its_layout_says_is_refused(device: torch.device, weights: WeightFormat) -> None:
    kernels = Products(torch.bfloat16, weights, device)
    part = store(weights, torch.randn(40, 64))
    assert "the plane 'codes'" in refused(kernels, replace(part, rows=80))
    assert "in the layout 'row'" in refused(kernels, replace(part, layout="row"))
    assert "[64, 96] columns" in refused(kernels, part, store(weights, torch.randn(40, 96)))
    assert "these kernels use no matrix" in refused(Products(torch.bfloat16, "plain", device), part)


def test_values_that_a_format_cannot_hold_are_refused(device: torch.device) -> None:
    for weights in ("int8", "fp8", "int4"):
        with pytest.raises(ValueError, match="finite"):
            Products(torch.bfloat16, weights, device).pack_linear([torch.full((2, 32), float("inf"))])
    with pytest.raises(ValueError, match="33 is no multiple"):
        Products(torch.bfloat16, "int4", device).pack_linear([torch.randn(2, 33)])


def test_a_weight_of_another_backend_is_told_apart(device: torch.device) -> None:
    weight = reference.pack_linear([torch.randn(4, 16)])
    with pytest.raises(TypeError, match="another backend"):
        Products(torch.float32, "plain", device).linear(torch.randn(1, 16, device=device), weight)
