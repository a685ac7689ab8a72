"""Each operator of each backend against the reference in float64, on fresh random inputs."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import Activation, Kernels, packed_bytes, reference, select
from halogen_kernels.cpu import linear
from halogen_kernels.quantise import rows_at_once
from hypothesis import given, settings
from hypothesis import strategies as st
from support.closeness import close

WIDTHS = st.sampled_from([1, 2, 7, 16, 33, 64, 100, 257])
ROWS = st.sampled_from([1, 2, 3, 5, 16, 17, 40])
BACKENDS = st.sampled_from(["cpu", "reference"])
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
ACTIVATIONS = st.sampled_from(["silu", "gelu_tanh"])
SEEDS = st.integers(0, 1 << 32)
EXACT = reference.table()


def table(backend: str, dtype: torch.dtype) -> Kernels:
    return select(backend, dtype, flash_attention=True)


@given(BACKENDS, DTYPES, st.tuples(ROWS, WIDTHS, WIDTHS), st.integers(1, 3), SEEDS)
@settings(max_examples=80, deadline=None)
def test_linear_with_and_without_a_bias_and_logits(
    backend: str, dtype: torch.dtype, sizes: tuple[int, int, int], parts: int, seed: int
) -> None:
    torch.manual_seed(seed)
    n, columns, rows = sizes
    kernels = table(backend, dtype)
    weight = torch.randn(rows, columns).to(dtype)
    x = torch.randn(n, columns).to(dtype)
    packed = kernels.pack_linear(iter(torch.tensor_split(weight, min(parts, rows))))
    assert (packed.rows, packed.columns) == (rows, columns)
    exact = x.double() @ weight.double().T
    size = float((x.double().abs() @ weight.double().abs().T).max())
    got = kernels.linear(x, packed)
    assert got.dtype == dtype
    assert close(got, exact, dtype, size=size)
    for bias in (torch.randn(rows) * 3, (torch.randn(rows) * 3).to(dtype)):
        summed = kernels.linear(x, packed, bias)
        assert summed.dtype == dtype
        room = size + float(bias.abs().max())
        assert close(summed, exact + bias.double(), dtype, steps=2, size=room)
    out = torch.full((n, rows), float("nan"))
    kernels.logits(x, packed, out)
    assert close(out, exact, dtype, size=size)


@given(BACKENDS, DTYPES)
@settings(deadline=None)
def test_packing_copies_each_slice(backend: str, dtype: torch.dtype) -> None:
    kernels = table(backend, dtype)
    weight = torch.randn(48, 32).to(dtype)
    buffer = torch.empty(16, 32, dtype=dtype)

    def slices():  # type: ignore[no-untyped-def]
        for part in weight.split(16):
            yield buffer.copy_(part)
            buffer.fill_(float("nan"))

    packed = kernels.pack_linear(slices())
    x = torch.randn(3, 32).to(dtype)
    assert close(kernels.linear(x, packed), x.double() @ weight.double().T, dtype, size=32.0)


@given(BACKENDS, DTYPES, st.tuples(ROWS, WIDTHS), ACTIVATIONS, st.integers(1, 2), SEEDS)
@settings(max_examples=80, deadline=None)
def test_gated_linear(
    backend: str, dtype: torch.dtype, sizes: tuple[int, int], kind: Activation, parts: int, seed: int
) -> None:
    torch.manual_seed(seed)
    n, width = sizes
    kernels = table(backend, dtype)
    gate, up = torch.randn(2, 37, width).to(dtype)
    x = torch.randn(n, width).to(dtype)
    packed = [kernels.pack_linear(iter(torch.tensor_split(weight, parts))) for weight in (gate, up)]
    opened = reference.activate(x.double() @ gate.double().T, kind)
    exact = opened * (x.double() @ up.double().T)
    sums = [x.double().abs() @ weight.double().abs().T for weight in (gate, up)]
    assert close(kernels.gated_linear(x, *packed, kind), exact, dtype, steps=3, size=float((sums[0] * sums[1]).max()))


@given(BACKENDS, DTYPES, DTYPES, st.tuples(ROWS, WIDTHS), st.sampled_from([1e-3, 1.0, 1e3]), SEEDS)
@settings(max_examples=80, deadline=None)
def test_rms_norm(
    backend: str, in_dtype: torch.dtype, dtype: torch.dtype, sizes: tuple[int, int], magnitude: float, seed: int
) -> None:
    torch.manual_seed(seed)
    n, width = sizes
    kernels = table(backend, dtype)
    x = (torch.randn(n, width) * magnitude).to(in_dtype)
    weight = torch.randn(width)
    norm = kernels.pack_norm(weight, 1e-5)
    exact = EXACT.rms_norm(x.double(), EXACT.pack_norm(weight.double(), 1e-5), torch.float64)
    got = kernels.rms_norm(x, norm, dtype)
    assert got.dtype == dtype
    assert close(got, exact, dtype)
    residual = torch.randn(n, width)
    summed = residual.double() + exact
    kernels.add_rms_norm(residual, x, norm)
    assert close(residual, summed, torch.float32, size=float(exact.abs().max() + summed.abs().max()))


@given(BACKENDS)
@settings(deadline=None)
def test_rms_norm_of_zeros_is_zero(backend: str) -> None:
    kernels = table(backend, torch.float32)
    assert not kernels.rms_norm(torch.zeros(2, 8), kernels.pack_norm(torch.ones(8), 1e-6), torch.float32).any()


@given(BACKENDS, DTYPES, ROWS, st.sampled_from([2, 4, 16, 48, 256]), st.booleans(), SEEDS)
@settings(max_examples=80, deadline=None)
def test_rotate(backend: str, dtype: torch.dtype, n: int, head_dim: int, normed: bool, seed: int) -> None:
    torch.manual_seed(seed)
    kernels = table(backend, dtype)
    qkv = torch.randn(n, 5, head_dim).to(dtype)
    angles = torch.randn(n, 1, head_dim // 2, dtype=torch.float64) * 100
    turns = torch.polar(torch.ones_like(angles), angles)
    weight = torch.randn(3, head_dim)
    exact = qkv[:, :3].double()
    EXACT.rotate(exact, turns, EXACT.pack_norm(weight.double(), 1e-6) if normed else None)
    rest = qkv[:, 3:].clone()
    kernels.rotate(qkv[:, :3], turns.to(torch.complex64), kernels.pack_norm(weight, 1e-6) if normed else None)
    assert close(qkv[:, :3], exact, dtype, steps=2)
    assert torch.equal(qkv[:, 3:], rest)


@given(BACKENDS, DTYPES, DTYPES)
@settings(deadline=None)
def test_write_kv(backend: str, dtype: torch.dtype, cache_dtype: torch.dtype) -> None:
    kernels = table(backend, dtype)
    cache = torch.full((4, 16 * 6), float("nan"), dtype=cache_dtype)
    qkv = torch.randn(5, 4, 2).to(dtype)  # one query head before K and V
    slots = torch.tensor([17, 63, 16, 48, 31])
    kernels.write_kv(cache, slots, qkv[:, 1:].flatten(1))
    rows = cache.view(-1, 6)
    assert torch.equal(rows[slots], qkv[:, 1:].flatten(1).to(cache_dtype))
    untouched = torch.ones(64, dtype=torch.bool)
    untouched[slots] = False
    assert rows[untouched].isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("columns", "rows"), [(576, 960), (1024, 320), (1025, 320), (1536, 576), (4096, 200), (100, 70)]
)
def test_a_row_is_the_same_bits_alone_and_in_any_batch(dtype: torch.dtype, columns: int, rows: int) -> None:
    """The packed products: preemption and batching change no bit of what they compute."""
    kernels = table("cpu", dtype)
    if kernels.names["linear"] != "cpu.onednn_packed":
        pytest.skip("this CPU multiplies without packing")
    for _ in range(8):
        weight, up = (kernels.pack_linear([torch.randn(rows, columns).to(dtype)]) for _ in range(2))
        x = torch.randn(200, columns).to(dtype)
        alone = (kernels.linear(x[:1], weight), kernels.gated_linear(x[:1], weight, up, "silu"))
        for batch in (2, 3, 8, 17, 200):
            assert torch.equal(kernels.linear(x[:batch], weight)[:1], alone[0])
            assert torch.equal(kernels.gated_linear(x[:batch], weight, up, "silu")[:1], alone[1])


@pytest.mark.parametrize("rows", [1, 3, 4, 70])
def test_what_a_processor_cannot_pack_is_summed_in_float32_and_rounded_once(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 where there is no packed form of it; the matrix is widened in pieces, the last of them smaller."""
    monkeypatch.setattr(linear, "can_pack", lambda dtype: False)
    kernels = table("cpu", torch.bfloat16)
    assert kernels.names["linear"] == "cpu.torch"
    columns, outputs = 64, 2 * rows_at_once(64) + 100
    x, matrix = (torch.randint(-4, 5, (count, columns)).float() for count in (rows, outputs))
    exact, bias = x @ matrix.t(), torch.full((outputs,), 2**-6)
    weight = kernels.pack_linear([matrix[:300].bfloat16(), matrix[300:].bfloat16()])
    found = torch.empty(rows, outputs)
    kernels.logits(x.bfloat16(), weight, found)
    assert torch.equal(found, exact.bfloat16().float())
    assert torch.equal(kernels.linear(x.bfloat16(), weight), exact.bfloat16())
    assert torch.allclose(kernels.linear(x.bfloat16(), weight, bias).float(), exact + bias, rtol=2**-8)
    gated = kernels.gated_linear(x.bfloat16(), weight, weight, "silu").float()
    assert torch.allclose(gated, torch.nn.functional.silu(exact) * exact, rtol=2**-6, atol=2**-6)


def test_status_says_what_runs() -> None:
    fused = select("cpu", torch.float32, flash_attention=True)
    explicit = select("cpu", torch.float32, flash_attention=False)
    assert fused.names["linear"] in ("cpu.onednn_packed", "cpu.torch")
    assert fused.pack_linear([torch.randn(8, 8)]).parts[0].is_mkldnn == (fused.names["linear"] == "cpu.onednn_packed")
    assert (fused.names["attention_decode"], explicit.names["attention_decode"]) == (
        "cpu.sdpa_grouped",
        "reference.softmax",
    )
    assert set(select("reference", torch.float32, flash_attention=True).names) == set(fused.names)
    assert explicit.attend is reference.attend


@given(st.sampled_from([(64, 32), (960, 576), (100, 70), (7, 33), (1, 1), (65, 576)]), DTYPES, st.integers(1, 2))
@settings(deadline=None)
def test_nbytes_is_what_is_held(sizes: tuple[int, int], dtype: torch.dtype, parts: int) -> None:
    """Exactly what the format says in the reference; with oneDNN's padding to blocks of 64 rows and 32
    columns at most on the CPU, in each part."""
    rows, columns = sizes
    slices = torch.tensor_split(torch.randn(rows, columns).to(dtype), min(parts, rows))
    least = packed_bytes(rows, columns, dtype, "plain")
    assert table("reference", dtype).pack_linear(slices).nbytes == least == sum(part.nbytes for part in slices)
    most = sum(-(-len(part) // 64) * 64 for part in slices) * (-(-columns // 32) * 32) * dtype.itemsize
    assert least <= table("cpu", dtype).pack_linear(slices).nbytes <= most


def test_a_bias_is_added_before_the_result_is_rounded() -> None:
    """1 + 2^-8 + 2^-12 rounds up in bfloat16; its bias rounded first would round to 1."""
    kernels = table("cpu", torch.bfloat16)
    packed = kernels.pack_linear([torch.ones(64, 32, dtype=torch.bfloat16)])
    x = torch.zeros(5, 32, dtype=torch.bfloat16)
    x[:, 0] = 1
    bias = torch.full((64,), 2**-8 + 2**-12)
    assert (kernels.linear(x, packed, bias) == 1 + 2**-7).all()
