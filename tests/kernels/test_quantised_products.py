"""Products with int8, fp8 and int4 weights of each backend against float64 over the values that are held."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import Activation, Kernels, LinearWeight, WeightFormat, quantise, reference, select
from hypothesis import given, settings
from hypothesis import strategies as st

BACKENDS = st.sampled_from(["cpu", "reference"])
FORMATS = st.sampled_from(["int8", "fp8", "int4"])
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
ROWS = st.sampled_from([1, 2, 3, 5, 16, 17, 40])
OUTS = st.sampled_from([1, 2, 7, 33, 100, 257])
SEEDS = st.integers(0, 1 << 32)
NAMES = {
    ("cpu", "int8", torch.bfloat16): "cpu.int8pack",
    ("cpu", "int8", torch.float32): "reference.int8",
    ("reference", "int8", torch.bfloat16): "reference.int8",
    ("reference", "int8", torch.float32): "reference.int8",
}


def table(backend: str, dtype: torch.dtype, weights: WeightFormat) -> Kernels:
    kernels = select(backend, dtype, flash_attention=True, weights=weights)
    name = NAMES.get((backend, weights, dtype), f"reference.{weights}")
    assert (kernels.names["linear"], kernels.names["gated_linear"]) == (name, name)
    return kernels


def values(weight: LinearWeight, weights: WeightFormat) -> torch.Tensor:
    exact = select("reference", torch.float64, flash_attention=True, weights=weights)
    return exact.linear(torch.eye(weight.columns, dtype=torch.float64), weight).T


def columns_of(weights: WeightFormat) -> st.SearchStrategy[int]:
    return st.sampled_from([32, 64, 160, 576] if weights == "int4" else [1, 7, 16, 33, 64, 100, 576])


def close(
    got: torch.Tensor,
    expected: torch.Tensor,
    dtype: torch.dtype,
    size: torch.Tensor,
    steps: int,
    rounded: torch.Tensor | None = None,
) -> bool:
    """Within `steps` roundings to `dtype` of the largest value (of `rounded` too: what was rounded before a bias took
    most of it away), and of float32 of what sums were before they cancelled."""
    assert got.shape == expected.shape
    largest = max(float(each.abs().max()) for each in (expected, expected if rounded is None else rounded))
    rounding = 2.0**-8 * largest if dtype == torch.bfloat16 else 0.0
    allowed = steps * (rounding + 2.0**-20 * max(1e-6, float(size.max())))
    return bool(got.isfinite().all()) and float((got.double() - expected).abs().max()) <= allowed


@given(st.data(), BACKENDS, FORMATS, DTYPES, st.tuples(ROWS, OUTS), SEEDS)
@settings(max_examples=120, deadline=None)
def test_linear_and_logits(
    data: st.DataObject,
    backend: str,
    weights: WeightFormat,
    dtype: torch.dtype,
    sizes: tuple[int, int],
    seed: int,
) -> None:
    n, rows = sizes
    columns = data.draw(columns_of(weights))
    torch.manual_seed(seed)
    kernels = table(backend, dtype, weights)
    weight = kernels.pack_linear(torch.tensor_split(torch.randn(rows, columns), min(rows, 2)))
    x = torch.randn(n, columns).to(dtype)
    exact = x.double() @ values(weight, weights).T
    size = x.double().abs() @ values(weight, weights).abs().T
    steps = 2 if kernels.names["linear"] == "cpu.int8pack" else 1
    got = kernels.linear(x, weight)
    assert got.dtype == dtype
    assert close(got, exact, dtype, size, steps)
    for bias in (torch.randn(rows) * 3, (torch.randn(rows) * 3).to(dtype)):
        summed = kernels.linear(x, weight, bias)
        assert summed.dtype == dtype
        assert close(summed, exact + bias.double(), dtype, size + bias.double().abs(), steps + 1, exact)
    out = torch.full((n, rows), float("nan"))
    kernels.logits(x, weight, out)
    assert close(out, exact, dtype if steps == 2 else torch.float32, size, steps)


@given(st.data(), BACKENDS, FORMATS, DTYPES, ROWS, st.sampled_from(["silu", "gelu_tanh"]))
@settings(max_examples=80, deadline=None)
def test_gated_linear(
    data: st.DataObject, backend: str, weights: WeightFormat, dtype: torch.dtype, n: int, kind: Activation
) -> None:
    columns = data.draw(columns_of(weights))
    torch.manual_seed(data.draw(SEEDS))
    kernels = table(backend, dtype, weights)
    gate, up = (kernels.pack_linear(torch.tensor_split(torch.randn(37, columns), 2)) for _ in range(2))
    x = torch.randn(n, columns).to(dtype)
    wide = x.double()
    exact = reference.activate(wide @ values(gate, weights).T, kind) * (wide @ values(up, weights).T)
    size = (wide.abs() @ values(gate, weights).abs().T) * (wide.abs() @ values(up, weights).abs().T)
    got = kernels.gated_linear(x, gate, up, kind)
    assert got.dtype == dtype
    assert close(got, exact, dtype, size, 3)


@pytest.mark.parametrize("weights", ["int8", "fp8", "int4"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("columns", "rows"), [(576, 960), (1536, 576), (4096, 608), (64, 96)])
def test_a_row_is_the_same_bits_alone_and_in_any_batch(
    backend: str, dtype: torch.dtype, weights: WeightFormat, columns: int, rows: int
) -> None:
    """Of widths that fill the CPU's vectors: torch's activations end a tensor in other arithmetic."""
    kernels = table(backend, dtype, weights)
    weight, up = (kernels.pack_linear([torch.randn(rows, columns)]) for _ in range(2))
    x = torch.randn(200, columns).to(dtype)
    alone = (kernels.linear(x[:1], weight), kernels.gated_linear(x[:1], weight, up, "silu"))
    for batch in (2, 3, 4, 8, 17, 200):
        assert torch.equal(kernels.linear(x[:batch], weight)[:1], alone[0])
        assert torch.equal(kernels.gated_linear(x[:batch], weight, up, "silu")[:1], alone[1])


@pytest.mark.parametrize("weights", ["int8", "fp8", "int4"])
def test_a_matrix_is_made_wide_in_bounded_pieces(weights: WeightFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 10 rows at a time give what one piece gives; the scratch holds one of them and is used again."""
    source, x = torch.randn(95, 64), torch.randn(5, 64)
    whole_kernels = table("reference", torch.float32, weights)
    whole = whole_kernels.linear(x, whole_kernels.pack_linear([source]))
    monkeypatch.setattr(quantise, "PART_VALUES", 640)
    kernels = table("reference", torch.float32, weights)
    products = kernels.linear.__self__  # type: ignore[attr-defined]  # a bound method
    weight = kernels.pack_linear([source])
    for _ in range(2):
        assert torch.allclose(kernels.linear(x, weight), whole, rtol=1e-5, atol=1e-5)
        assert products._scratch.take("matrix", (1,), torch.float32).untyped_storage().nbytes() == 640 * 4


def test_float32_slices_lose_nothing_to_a_narrow_compute_type() -> None:
    """The codes are the same whatever the products are in."""
    source = torch.randn(16, 64)
    for weights in ("int8", "fp8", "int4"):
        narrow, wide = (
            table("reference", dtype, weights).pack_linear([source]).parts[0].codes
            for dtype in (torch.bfloat16, torch.float32)
        )
        assert torch.equal(narrow, wide)
