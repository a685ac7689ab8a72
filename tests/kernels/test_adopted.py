"""Quantised matrices used where they lie: the layouts r8.v1, f8.v1 and g32-a4.v1 of every backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from halogen_kernels import (
    FP8_ROWS,
    INT4_TILES,
    INT8_ROWS,
    Kernels,
    StoredPart,
    WeightFormat,
    quantise,
    reference,
    select,
)
from halogen_kernels.quantise import pack_fp8, pack_int8, pack_tiles
from hypothesis import given, settings
from hypothesis import strategies as st

LAYOUTS: dict[WeightFormat, str] = {"int8": INT8_ROWS, "fp8": FP8_ROWS, "int4": INT4_TILES}
BACKENDS = st.sampled_from(["cpu", "reference"])
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
BLOCKS = st.sampled_from([1, 16, 32, 64])
SEEDS = st.integers(0, 1 << 32)


def store(weights: WeightFormat, matrix: torch.Tensor, block: int = 32) -> StoredPart:
    rows, columns = matrix.shape
    if weights != "int4":
        part = pack_int8(matrix) if weights == "int8" else pack_fp8(matrix)
        return StoredPart(LAYOUTS[weights], rows, columns, {"codes": part.codes, "scales": part.scales})
    tiles = pack_tiles(matrix, block)
    planes = {"codes": tiles.codes, "scales": tiles.scales, "minima": tiles.minima}
    return StoredPart(INT4_TILES, rows, columns, planes)


def numbers(part: StoredPart) -> torch.Tensor:
    """Float64 [rows, columns], each number as the layout's definition says."""
    scales = part.planes["scales"].double()
    if part.layout in (INT8_ROWS, FP8_ROWS):
        return part.planes["codes"].double() * scales.unsqueeze(1)
    block = part.planes["codes"].shape[3]
    codes, factors, minima = part.planes["codes"].tolist(), scales.tolist(), part.planes["minima"].double().tolist()

    def number(row: int, column: int) -> float:
        (tile, r), (group, place) = divmod(row, block), divmod(column, 32)
        byte = codes[tile][group][place % 16][r]
        code = byte & 15 if place < 16 else byte >> 4
        return factors[tile][group][r] * code + minima[tile][group][r]

    rows = [[number(row, column) for column in range(part.columns)] for row in range(part.rows)]
    return torch.tensor(rows, dtype=torch.float64)


def close(got: torch.Tensor, exact: torch.Tensor, size: torch.Tensor, roundings: int) -> bool:
    """Within roundings to the result's type, and float32's of what sums were before they cancelled."""
    rounding = 2.0**-8 * float(exact.abs().max()) if got.dtype == torch.bfloat16 else 0.0
    allowed = roundings * (rounding + 2.0**-20 * max(1e-6, float(size.max())))
    return bool(got.isfinite().all()) and float((got.double() - exact).abs().max()) <= allowed


@given(st.data(), BACKENDS, st.sampled_from(["int8", "fp8", "int4"]), DTYPES, BLOCKS, SEEDS)
@settings(max_examples=60, deadline=None)
def test_products_are_those_of_the_layouts_numbers(
    data: st.DataObject, backend: str, weights: WeightFormat, dtype: torch.dtype, block: int, seed: int
) -> None:
    """Of several matrices below each other, whose rows do not fill their tiles."""
    torch.manual_seed(seed)
    columns = data.draw(st.sampled_from([32, 64, 160] if weights == "int4" else [7, 16, 64, 100]))
    rows = data.draw(st.lists(st.sampled_from([1, 5, 31, 32, 33]), min_size=1, max_size=3))
    parts = [store(weights, torch.randn(count, columns), block) for count in rows]
    kernels = select(backend, dtype, flash_attention=True, weights=weights)
    assert kernels.takes == {LAYOUTS[weights]}
    weight = kernels.adopt_linear(parts)
    assert (weight.rows, weight.columns, weight.dtype) == (sum(rows), columns, dtype)
    held = torch.cat([numbers(part) for part in parts])
    x = torch.randn(data.draw(st.sampled_from([1, 3, 4, 17])), columns).to(dtype)
    exact, size = x.double() @ held.T, x.double().abs() @ held.abs().T
    steps = 2 if kernels.names["linear"] == "cpu.int8pack" else 1
    assert close(kernels.linear(x, weight), exact, size, steps)
    bias = torch.randn(sum(rows))
    assert close(kernels.linear(x, weight, bias), exact + bias.double(), size + bias.abs().double(), steps + 1)
    out = torch.full((len(x), sum(rows)), float("nan"))
    kernels.logits(x, weight, out)
    assert close(out if steps == 1 else out.to(dtype), exact, size, steps)
    gated = kernels.gated_linear(x, weight, weight, "silu")
    assert close(gated, reference.activate(exact, "silu") * exact, size * size, 3)


@pytest.mark.parametrize("weights", LAYOUTS)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_nothing_is_copied(backend: str, weights: WeightFormat) -> None:
    parts = [store(weights, torch.randn(rows, 64)) for rows in (70, 32)]
    weight = select(backend, torch.bfloat16, flash_attention=True, weights=weights).adopt_linear(parts)
    planes = [plane for part in parts for plane in part.planes.values()]
    held = [getattr(part, name) for part in weight.parts for name in parts[0].planes]
    assert {plane.data_ptr() for plane in planes} == {plane.data_ptr() for plane in held}
    assert weight.nbytes == sum(plane.nbytes for plane in planes)


@pytest.mark.parametrize("weights", LAYOUTS)
def test_packed_and_adopted_are_the_same_numbers(weights: WeightFormat) -> None:
    matrix = torch.randn(75, 96)
    exact = select("reference", torch.float64, flash_attention=True, weights=weights)
    unit = torch.eye(96, dtype=torch.float64)
    packed = exact.linear(unit, exact.pack_linear([matrix]))
    for block in (1, 8, 32, 128):
        assert torch.equal(exact.linear(unit, exact.adopt_linear([store(weights, matrix, block)])), packed)


@pytest.mark.parametrize("weights", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("columns", "rows"), [(576, 960), (1536, 576), (4096, 608), (64, 96)])
def test_a_row_is_the_same_bits_alone_and_in_any_batch(
    dtype: torch.dtype, weights: WeightFormat, columns: int, rows: int
) -> None:
    kernels = select("cpu", dtype, flash_attention=True, weights=weights)
    weight, up = (kernels.adopt_linear([store(weights, torch.randn(rows, columns))]) for _ in range(2))
    x = torch.randn(200, columns).to(dtype)
    alone = (kernels.linear(x[:1], weight), kernels.gated_linear(x[:1], weight, up, "silu"))
    for batch in (2, 3, 4, 8, 17, 200):
        assert torch.equal(kernels.linear(x[:batch], weight)[:1], alone[0])
        assert torch.equal(kernels.gated_linear(x[:batch], weight, up, "silu")[:1], alone[1])


def test_tiles_are_made_wide_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tiles of eight rows at a time give what all at once give; the scratch holds two."""
    part, x = store("int4", torch.randn(95, 64), block=8), torch.randn(5, 64)
    kernels = select("reference", torch.float32, flash_attention=True, weights="int4")
    whole = kernels.linear(x, kernels.adopt_linear([part]))
    monkeypatch.setattr(quantise, "PART_VALUES", 2 * 8 * 64)
    kernels = select("reference", torch.float32, flash_attention=True, weights="int4")
    weight = kernels.adopt_linear([part])
    assert [piece.rows for piece in weight.parts] == [16, 16, 16, 16, 16, 15]
    assert torch.allclose(kernels.linear(x, weight), whole, rtol=1e-5, atol=1e-5)
    products = kernels.linear.__self__  # type: ignore[attr-defined]  # a bound method
    assert products._scratch.take("matrix", (1,), torch.float32).untyped_storage().nbytes() == 2 * 8 * 64 * 4


def refused(kernels: Kernels, *parts: StoredPart) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        kernels.adopt_linear(parts)
    return str(caught.value)


@pytest.mark.parametrize("weights", LAYOUTS)
def test_what_is_not_as_its_layout_says_is_refused(weights: WeightFormat) -> None:
    kernels = select("cpu", torch.bfloat16, flash_attention=True, weights=weights)
    part = store(weights, torch.randn(40, 64))
    for name, plane in part.planes.items():
        for wrong in (plane[:-1], plane.to(torch.int32), torch.stack([plane, plane], -1)[..., 0]):
            assert f"the plane {name!r}" in refused(kernels, replace(part, planes={**part.planes, name: wrong}))
    assert "the plane 'codes'" in refused(kernels, replace(part, rows=80))
    assert "in the layout 'row'" in refused(kernels, replace(part, layout="row"))
    assert "[64, 96] columns" in refused(kernels, part, store(weights, torch.randn(40, 96)))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_plain_weights_are_packed(backend: str) -> None:
    kernels = select(backend, torch.bfloat16, flash_attention=True)
    assert kernels.takes == frozenset()
    assert "these are in g32-a4.v1" in refused(kernels, store("int4", torch.randn(3, 32)))
