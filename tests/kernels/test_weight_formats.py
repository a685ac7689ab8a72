"""Weights as int8, fp8 and int4: what they hold, what comes back, what they refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from halogen_kernels import GROUP_COLUMNS, WEIGHT_FORMATS, Kernels, WeightFormat, packed_bytes, select
from halogen_kernels.quantise import Fp8Part, Int4Part, Int8Part
from halogen_kernels.values import LinearWeight
from hypothesis import given, settings
from hypothesis import strategies as st

QUANTISED = st.sampled_from(["int8", "fp8", "int4"])
ROWS = st.sampled_from([1, 2, 7, 33, 64])
GROUPS = st.sampled_from([1, 2, 5, 18])
MAGNITUDES = st.sampled_from([1e-4, 0.02, 1.0, 100.0])
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
SEEDS = st.integers(0, 1 << 32)


def exact(weights: WeightFormat) -> Kernels:
    return select("reference", torch.float64, flash_attention=True, weights=weights)


def held_values(weight: LinearWeight, weights: WeightFormat) -> torch.Tensor:
    """Float64 [rows, columns]: the products with the unit vectors."""
    return exact(weights).linear(torch.eye(weight.columns, dtype=torch.float64), weight).T


def decoded(weight: LinearWeight) -> torch.Tensor:
    """The same from the parts, value by value as the layout says."""
    rows: list[list[float]] = []
    for part in weight.parts:
        if isinstance(part, Int8Part | Fp8Part):
            rows += [
                [scale * code for code in codes]
                for codes, scale in zip(part.codes.double().tolist(), part.scales.double().tolist(), strict=True)
            ]
            continue
        assert isinstance(part, Int4Part)
        codes, scales, minima = part.codes.tolist(), part.scales.double().tolist(), part.minima.double().tolist()
        for row in range(part.codes.shape[2]):
            values = []
            for column in range(weight.columns):
                group, place = divmod(column, 32)
                byte = codes[group][place % 16][row]
                code = byte & 15 if place < 16 else byte >> 4
                values.append(scales[group][0][row] * code + minima[group][0][row])
            rows.append(values)
    return torch.tensor(rows, dtype=torch.float64)


@given(QUANTISED, ROWS, GROUPS, MAGNITUDES, DTYPES, SEEDS)
@settings(max_examples=60, deadline=None)
def test_held_values_are_within_half_a_step(
    weights: WeightFormat, rows: int, groups: int, magnitude: float, dtype: torch.dtype, seed: int
) -> None:
    """Half of the step between codes, and in int4 what rounding scale and minimum to float16 adds: 2^-11 of
    each, or 2^-25 below float16's normal numbers."""
    torch.manual_seed(seed)
    source = (torch.randn(rows, groups * GROUP_COLUMNS) * magnitude).to(dtype)
    weight = exact(weights).pack_linear(torch.tensor_split(source, min(rows, 2)))
    held = held_values(weight, weights)
    assert torch.allclose(held, decoded(weight), rtol=1e-12, atol=1e-14)
    wide = source.double()
    if weights == "int8":
        step = wide.abs().amax(1, keepdim=True) / 127
        allowed = step * (0.5 + 127 * 2**-22)
    elif weights == "fp8":
        least = wide.abs().amax(1, keepdim=True) / 448  # half of the step between codes is a 16th of it, or 2^-10
        allowed = (wide.abs() / 16).maximum(least * 2**-10) * (1 + 2**-12)
    else:
        grouped = wide.view(rows, groups, GROUP_COLUMNS)
        low, high = grouped.amin(2, keepdim=True), grouped.amax(2, keepdim=True)
        step = (high - low) / 15
        rounding = 16 * (step * 2**-11 + 2**-25) + low.abs() * 2**-11
        allowed = (step * 0.5 + rounding).expand_as(grouped).reshape(wide.shape)
    assert ((held - wide).abs() <= allowed).all()


@given(ROWS, GROUPS, st.floats(2**-10, 2**3), SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_source_with_four_bit_codes_comes_back_as_it_was(rows: int, groups: int, size: float, seed: int) -> None:
    """scale * code + minimum with both in float16, as 4-bit formats have them, and both end codes in each
    group: every value is the same, to the last bit of float32."""
    torch.manual_seed(seed)
    scales = (torch.rand(rows, groups, 1) * size + size).half().float()
    minima = (torch.randn(rows, groups, 1) * size * 8).half().float()
    codes = every_code(rows, groups)
    source = (scales * codes + minima).flatten(1)
    weight = exact("int4").pack_linear([source])
    assert torch.equal(weight.parts[0].scales.permute(2, 0, 1).float(), scales)
    assert torch.equal(held_values(weight, "int4").float(), source)


@given(ROWS, GROUPS, DTYPES, SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_source_with_a_zero_point_keeps_its_codes(rows: int, groups: int, dtype: torch.dtype, seed: int) -> None:
    """scale * (code - zero): the minimum, -zero * scale, is rounded to float16, and nothing else is lost.
    From bfloat16 slices the values are as near as those slices were."""
    torch.manual_seed(seed)
    scales = (torch.rand(rows, groups, 1) * 0.02 + 0.001).half().float()
    zeros = torch.randint(0, 16, (rows, groups, 1))
    codes = every_code(rows, groups)
    source = (scales * (codes - zeros)).flatten(1)
    weight = exact("int4").pack_linear([source.to(dtype)])
    error = (held_values(weight, "int4") - source.double()).view(rows, groups, GROUP_COLUMNS).abs()
    rounding = 2**-11 if dtype == torch.float32 else 2**-8
    most = 15 * scales.double()
    assert (error <= most * rounding * (1 if dtype == torch.float32 else 4)).all()
    if dtype == torch.float32:
        assert torch.equal(weight.parts[0].scales.permute(2, 0, 1).float(), scales)
        part = weight.parts[0]
        nibbles = torch.cat((part.codes & 15, part.codes >> 4), dim=1).permute(2, 0, 1)
        assert torch.equal(nibbles.int(), codes.int())


def every_code(rows: int, groups: int) -> torch.Tensor:
    """Each of the 16 codes twice in each group, in a random order."""
    order = torch.rand(rows, groups, GROUP_COLUMNS).argsort(2)
    return (order % 16).float()


@given(ROWS, st.sampled_from([1, 7, 32, 100]), SEEDS)
@settings(max_examples=40, deadline=None)
def test_int8_codes_with_a_full_one_in_each_row_come_back(rows: int, columns: int, seed: int) -> None:
    torch.manual_seed(seed)
    codes = torch.randint(-127, 128, (rows, columns))
    codes[:, 0] = 127
    scales = torch.rand(rows, 1) + 0.1
    weight = exact("int8").pack_linear([codes * scales])
    assert torch.equal(weight.parts[0].codes.long(), codes)
    assert torch.allclose(weight.parts[0].scales, scales[:, 0], rtol=2**-22)


@pytest.mark.parametrize("weights", ["int8", "fp8", "int4"])
@pytest.mark.parametrize("value", [0.0, -0.25, 3.0])
def test_equal_values_come_back(weights: WeightFormat, value: float) -> None:
    weight = exact(weights).pack_linear([torch.full((3, 64), value)])
    assert torch.allclose(held_values(weight, weights), torch.tensor(value, dtype=torch.float64), rtol=2**-22)


@pytest.mark.parametrize("weights", WEIGHT_FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(1, 32), (64, 64), (960, 576), (3000, 1024)])
def test_packed_bytes_is_what_is_held(weights: WeightFormat, dtype: torch.dtype, sizes: tuple[int, int]) -> None:
    rows, columns = sizes
    slices = torch.tensor_split(torch.randn(rows, columns).to(dtype), min(rows, 2))
    weight = select("reference", dtype, flash_attention=True, weights=weights).pack_linear(slices)
    assert (weight.rows, weight.columns, weight.dtype) == (rows, columns, dtype)
    assert weight.nbytes == packed_bytes(rows, columns, dtype, weights)
    assert all(tensor.is_contiguous() for part in weight.parts for tensor in held(part))
    assert weight.nbytes == sum(tensor.untyped_storage().nbytes() for part in weight.parts for tensor in held(part))


def held(part: torch.Tensor | Int8Part | Fp8Part | Int4Part) -> list[torch.Tensor]:
    if isinstance(part, torch.Tensor):
        return [part]
    return [part.codes, part.scales, part.minima] if isinstance(part, Int4Part) else [part.codes, part.scales]


def test_bits_a_weight() -> None:
    assert packed_bytes(64, 4096, torch.bfloat16, "plain") * 8 == 16 * 64 * 4096
    assert packed_bytes(64, 4096, torch.bfloat16, "int8") * 8 == 64 * (8 * 4096 + 32)
    assert packed_bytes(64, 4096, torch.bfloat16, "fp8") * 8 == 64 * (8 * 4096 + 32)
    assert packed_bytes(64, 4096, torch.bfloat16, "int4") * 8 == 5 * 64 * 4096


@given(QUANTISED, DTYPES)
@settings(deadline=None)
def test_packing_copies_each_slice(weights: WeightFormat, dtype: torch.dtype) -> None:
    source = torch.randn(48, 64).to(dtype)
    buffer = torch.empty(16, 64, dtype=dtype)

    def slices() -> Iterator[torch.Tensor]:
        for first in range(0, 48, 16):
            yield buffer.copy_(source[first : first + 16])
            buffer.fill_(float("nan"))

    packed = exact(weights).pack_linear(slices())
    assert torch.equal(held_values(packed, weights), held_values(exact(weights).pack_linear([source]), weights))


@pytest.mark.parametrize("columns", [1, 16, 33, 100])
def test_columns_that_are_not_whole_groups_are_refused(columns: int) -> None:
    message = f"int4 needs columns in groups of 32, and {columns} is no multiple of it"
    with pytest.raises(ValueError, match=message):
        packed_bytes(4, columns, torch.float32, "int4")
    with pytest.raises(ValueError, match=message):
        exact("int4").pack_linear([torch.zeros(4, columns)])


@pytest.mark.parametrize(
    ("weights", "value", "needs"),
    [
        ("int8", float("nan"), "int8 needs weights that are finite"),
        ("int8", float("inf"), "int8 needs weights that are finite"),
        ("fp8", float("nan"), "fp8 needs weights that are finite"),
        ("fp8", float("-inf"), "fp8 needs weights that are finite"),
        ("int4", float("nan"), "finite and within float16"),
        ("int4", float("-inf"), "finite and within float16"),
        ("int4", -7e4, "finite and within float16"),
        ("int4", 2e6, "finite and within float16"),
    ],
)
def test_values_that_a_format_cannot_hold_are_refused(weights: WeightFormat, value: float, needs: str) -> None:
    source = torch.randn(5, 64)
    source[3, 40] = value
    with pytest.raises(ValueError, match=needs):
        exact(weights).pack_linear([source])


def test_formats_and_backends_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="no weight format 'int3'; there are plain, int8, int4"):
        select("cpu", torch.float32, flash_attention=True, weights="int3")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="no weight format 'int3'"):
        packed_bytes(1, 32, torch.float32, "int3")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="no backend 'gpu'; there are cpu, reference"):
        select("gpu", torch.float32, flash_attention=True)
