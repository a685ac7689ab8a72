"""Triton's mixture of experts of each weight format against float64 over the values that are held."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import Activation, ExpertWeights, WeightFormat, reference
from halogen_kernels.triton import targets
from halogen_kernels.triton.experts import Experts
from halogen_kernels.triton.launching import launched
from halogen_kernels.triton.linear import Products
from halogen_kernels.triton.matrix import matrix_of
from support.held_weights import fresh, numbers
from torch import Tensor

FORMATS: list[WeightFormat] = ["plain", "int8", "fp8", "int4"]
WIDTH = 64


def make(weights: WeightFormat, dtype: torch.dtype, device: torch.device, count: int, inner: int) -> ExpertWeights:
    kernels = Products(dtype, weights, device)

    def each(rows: int, columns: int) -> tuple:
        sources = torch.randn(count, rows, columns) / columns**0.5
        return tuple(kernels.pack_linear([one.to(dtype) if weights == "plain" else one]) for one in sources)

    return ExpertWeights(gate=each(inner, WIDTH), up=each(inner, WIDTH), down=each(WIDTH, inner))


def choose(rows: int, count: int, each: int, device: torch.device) -> tuple[Tensor, Tensor]:
    shares, chosen = torch.rand(rows, count).topk(each)
    return chosen.to(device), shares.to(device)


def exact(x: Tensor, chosen: Tensor, shares: Tensor, experts: ExpertWeights, kind: Activation) -> Tensor:
    """Choices of an expert that there is not count for nothing."""
    out = torch.zeros(x.shape, dtype=torch.float64)
    wide, shares = x.cpu().double(), shares.cpu().double()
    for row, numbers_ in enumerate(chosen.cpu().tolist()):
        for choice, number in enumerate(numbers_):
            if not 0 <= number < len(experts.gate):
                continue
            gate, up, down = (numbers(matrix_of(each[number])) for each in (experts.gate, experts.up, experts.down))
            inner = reference.activate(wide[row] @ gate.T, kind) * (wide[row] @ up.T)
            out[row] += shares[row, choice] * (inner @ down.T)
    return out


def assert_close(got: Tensor, expected: Tensor) -> None:
    steps = {torch.bfloat16: 2**-6, torch.float16: 2**-9, torch.float32: 2**-18}[got.dtype]
    assert bool(got.isfinite().all())
    assert float((got.cpu().double() - expected).abs().max()) <= steps * float(expected.abs().max())


@pytest.mark.parametrize(
    ("weights", "sizes", "dtype", "kind"),
    [
        ("plain", (1, 1, 1), torch.bfloat16, "silu"),
        ("plain", (40, 2, 2), torch.bfloat16, "gelu_tanh"),
        ("int8", (1, 8, 2), torch.float32, "gelu_tanh"),
        ("int8", (40, 2, 2), torch.bfloat16, "silu"),
        ("fp8", (5, 4, 2), torch.float16, "silu"),
        ("fp8", (40, 2, 2), torch.bfloat16, "silu"),
        ("int4", (5, 4, 4), torch.bfloat16, "gelu_tanh"),
        ("int4", (40, 2, 1), torch.float16, "silu"),
    ],
    ids=str,
)
def test_against_float64(
    device: torch.device, weights: WeightFormat, sizes: tuple[int, int, int], dtype: torch.dtype, kind: Activation
) -> None:
    fresh()
    n, count, each = sizes
    experts = make(weights, dtype, device, count, 96)
    x = torch.randn(n, WIDTH).to(dtype).to(device)
    chosen, shares = choose(n, count, each, device)
    with launched() as variants:
        got = Experts()(x, chosen, shares, experts, kind)
    kernels = ["route_kernel", "expert_kernel", "expert_kernel", "combine_kernel"]
    assert [variant.kernel for variant in variants] == kernels
    assert got.dtype == dtype
    assert_close(got, exact(x, chosen, shares, experts, kind))


@pytest.mark.parametrize("weights", ["plain", "int4"])
def test_an_inner_width_that_is_no_multiple_of_16(device: torch.device, weights: WeightFormat) -> None:
    """Of int4 none can be: its groups have 32 columns."""
    fresh()
    inner = 96 if weights == "int4" else 52
    experts = make(weights, torch.float32, device, 3, inner)
    x = torch.randn(4, WIDTH, device=device)
    chosen, shares = choose(4, 3, 2, device)
    assert_close(Experts()(x, chosen, shares, experts, "silu"), exact(x, chosen, shares, experts, "silu"))


@pytest.mark.parametrize("target", ["sm_90", "gfx1151"])
def test_with_a_devices_block_sizes(device: torch.device, target: str) -> None:
    """Experts with no row, and with rows for several tiles."""
    fresh()
    experts = make("fp8", torch.bfloat16, device, 4, 96)
    chosen = torch.tensor([0] * 70 + [3] * 17 + [1], device=device).unsqueeze(1)
    chosen = chosen[torch.randperm(88, device=device)]
    shares, x = torch.rand(88, 1, device=device), torch.randn(88, WIDTH).bfloat16().to(device)
    with targets.chosen(targets.named(target)):
        got = Experts()(x, chosen, shares, experts, "silu")
    assert_close(got, exact(x, chosen, shares, experts, "silu"))


def test_a_number_that_no_expert_has_counts_for_nothing(device: torch.device) -> None:
    fresh()
    experts = make("int8", torch.float32, device, 3, 32)
    chosen = torch.tensor([[0, -1], [3, 2], [1, 1 << 20], [-5, 9]], device=device)
    x, shares = torch.randn(4, WIDTH, device=device), torch.rand(4, 2, device=device)
    got = Experts()(x, chosen, shares, experts, "silu")
    assert_close(got, exact(x, chosen, shares, experts, "silu"))
    assert not got[3].any()


def test_more_pairs_than_one_program_of_the_route_has(device: torch.device) -> None:
    fresh()
    experts = make("plain", torch.float32, device, 5, 32)
    x = torch.randn(30, WIDTH, device=device)
    chosen, shares = choose(30, 5, 3, device)
    assert_close(Experts()(x, chosen, shares, experts, "silu"), exact(x, chosen, shares, experts, "silu"))


def test_a_row_is_the_same_bits_whatever_rows_are_beside_it(device: torch.device) -> None:
    """With block sizes for few rows all along."""
    fresh()
    experts = make("int8", torch.bfloat16, device, 4, 96)
    x = torch.randn(9, WIDTH).bfloat16().to(device)
    chosen, shares = choose(9, 4, 2, device)
    mixture = Experts()
    together = mixture(x, chosen, shares, experts, "silu")
    for row in (0, 8):
        own = (each[row : row + 1].clone() for each in (x, chosen, shares))
        alone = mixture(*own, experts, "silu")
        assert torch.equal(alone, together[row : row + 1])


def test_experts_that_are_not_alike_are_refused(device: torch.device) -> None:
    few, many = (make("int8", torch.float32, device, 2, inner) for inner in (32, 64))
    mixed = ExpertWeights((few.gate[0], many.gate[0]), few.up, few.down)
    x = torch.randn(1, WIDTH, device=device)
    with pytest.raises(ValueError, match="alike"):
        Experts()(x, torch.tensor([[0]], device=device), torch.ones(1, 1, device=device), mixed, "silu")
