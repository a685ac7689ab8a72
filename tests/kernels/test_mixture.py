"""A mixture's feed-forward of each backend and weight format against float64."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import Activation, ExpertWeights, Kernels, LinearWeight, WeightFormat, reference, select
from halogen_kernels.cpu.mixture import GroupedMixture
from hypothesis import given, settings
from hypothesis import strategies as st

BACKENDS = st.sampled_from(["cpu", "reference"])
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
WEIGHTS = st.sampled_from(["plain", "int8", "fp8", "int4"])
WIDTH = 64


def make_experts(kernels: Kernels, dtype: torch.dtype, count: int, inner: int) -> ExpertWeights:
    """From the generator's state: the same matrices for every backend."""

    def pack(rows: int, columns: int) -> tuple[LinearWeight, ...]:
        matrices = torch.randn(count, rows, columns).to(dtype) / columns**0.5
        return tuple(kernels.pack_linear([matrix]) for matrix in matrices)

    return ExpertWeights(gate=pack(inner, WIDTH), up=pack(inner, WIDTH), down=pack(WIDTH, inner))


def choose(rows: int, count: int, each: int) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.rand(rows, count)
    shares, chosen = scores.topk(each)
    return chosen, shares


@given(
    backend=BACKENDS,
    dtype=DTYPES,
    weights=WEIGHTS,
    sizes=st.sampled_from([(1, 1, 1), (1, 8, 2), (5, 4, 4), (17, 3, 1), (40, 16, 4)]),
    kind=st.sampled_from(["silu", "gelu_tanh"]),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=60, deadline=None)
def test_against_float64(
    backend: str,
    dtype: torch.dtype,
    weights: WeightFormat,
    sizes: tuple[int, int, int],
    kind: Activation,
    seed: int,
) -> None:
    rows, count, each = sizes
    torch.manual_seed(seed)
    x = torch.randn(rows, WIDTH).to(dtype)
    chosen, shares = choose(rows, count, each)
    kernels = select(backend, dtype, flash_attention=True, weights=weights)
    assert kernels.names["mixture"] == ("cpu.grouped" if backend == "cpu" else "reference")
    torch.manual_seed(seed)
    got = kernels.mixture(x, chosen, shares, make_experts(kernels, dtype, count, 96), kind)
    torch.manual_seed(seed)
    exact = exact_mixture(x, (chosen, shares), dtype, weights, count, kind)
    assert got.dtype == dtype
    assert got.shape == x.shape
    allowed = (2**-6 if dtype == torch.bfloat16 else 2**-18) * float(exact.abs().max())
    assert float((got.double() - exact).abs().max()) <= allowed


def exact_mixture(
    x: torch.Tensor,
    choices: tuple[torch.Tensor, torch.Tensor],
    dtype: torch.dtype,
    weights: WeightFormat,
    count: int,
    kind: Activation,
) -> torch.Tensor:
    """Over all experts with a share of 0 for those not chosen, with the weights' held values in float64."""
    exact = select("reference", torch.float64, flash_attention=True, weights=weights)

    def values(rows: int, columns: int) -> list[torch.Tensor]:
        matrices = torch.randn(count, rows, columns).to(dtype) / columns**0.5
        if weights == "plain":
            return list(matrices.double())
        one = torch.eye(columns, dtype=torch.float64)
        return [exact.linear(one, exact.pack_linear([matrix])).T for matrix in matrices]

    gate, up, down = values(96, WIDTH), values(96, WIDTH), values(WIDTH, 96)
    every = torch.zeros(len(x), count, dtype=torch.float64).scatter_(1, choices[0], choices[1].double())
    wide = x.double()
    outs = [
        reference.activate(wide @ gate[e].T, kind) * (wide @ up[e].T) @ down[e].T * every[:, e : e + 1]
        for e in range(count)
    ]
    return torch.stack(outs).sum(0)


@pytest.mark.parametrize("weights", ["plain", "int8", "fp8", "int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_is_the_same_bits_alone_and_beside_others(dtype: torch.dtype, weights: WeightFormat) -> None:
    kernels = select("cpu", dtype, flash_attention=True, weights=weights)
    if weights == "plain" and kernels.names["linear"] != "cpu.onednn_packed":
        pytest.skip("this CPU multiplies without packing")
    experts = make_experts(kernels, dtype, 8, 96)
    x = torch.randn(33, WIDTH).to(dtype)
    chosen, shares = choose(33, 8, 3)
    together = kernels.mixture(x, chosen, shares, experts, "silu")
    for row in range(33):
        rows = slice(row, row + 1)
        alone = kernels.mixture(x[rows], chosen[rows], shares[rows], experts, "silu")
        assert torch.equal(alone, together[rows])


def test_each_expert_with_rows_runs_once_over_all_of_them() -> None:
    kernels = select("cpu", torch.float32, flash_attention=True)
    assert isinstance(kernels.mixture, GroupedMixture)
    experts = make_experts(kernels, torch.float32, 4, 32)
    ran: list[tuple[int, int]] = []

    def gated(x: torch.Tensor, gate: LinearWeight, up: LinearWeight, activation: Activation) -> torch.Tensor:
        ran.append((experts.gate.index(gate), len(x)))
        return kernels.gated_linear(x, gate, up, activation)

    chosen = torch.tensor([[3, 0], [0, 1], [1, 0]])
    GroupedMixture(kernels.linear, gated)(torch.randn(3, WIDTH), chosen, torch.rand(3, 2), experts, "silu")
    assert ran == [(0, 3), (1, 2), (3, 1)]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("number", [-1, 2])
def test_a_number_that_no_expert_has_is_refused(backend: str, number: int) -> None:
    kernels = select(backend, torch.float32, flash_attention=True)
    experts = make_experts(kernels, torch.float32, 2, 32)
    with pytest.raises(ValueError, match=rf"experts .*{number}.* were chosen, and there are 0 to 1"):
        kernels.mixture(torch.randn(1, WIDTH), torch.tensor([[0, number]]), torch.ones(1, 2), experts, "silu")


def test_bytes_of_experts_are_those_of_their_matrices() -> None:
    kernels = select("cpu", torch.float32, flash_attention=True, weights="int4")
    experts = make_experts(kernels, torch.float32, 3, 32)
    assert experts.nbytes == 3 * 3 * experts.gate[0].nbytes
