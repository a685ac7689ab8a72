"""Triton's gate against the reference in float64."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import Activation, reference
from halogen_kernels.triton import launching
from halogen_kernels.triton.activation import activation
from support.closeness import close


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", [(1, 1), (3, 70), (2, 1024), (17, 1040), (40, 33)], ids=str)
def test_activation(sizes: tuple[int, int], dtype: torch.dtype, kind: Activation, device: torch.device) -> None:
    """Of two halves of rows, far and near zero."""
    n, width = sizes
    both = (torch.randn(n, 2 * -(-width // 16) * 16) * 4).to(device, dtype)
    gate, up = both[:, :width], both[:, both.shape[1] // 2 :][:, :width]
    exact = reference.activate(gate.double().cpu(), kind) * up.double().cpu()
    got = activation(gate, up, kind)
    assert close(got, exact, dtype, steps=2)
    assert launching.last().constexprs["KIND"] == kind
    assert launching.last().constexprs["ALIGNED"] == (width % 16 == 0)


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
def test_far_from_zero_a_gate_is_open_or_shut(kind: Activation, device: torch.device) -> None:
    gate = torch.tensor([[-3e4, -200.0, 0.0, 200.0, 3e4]], dtype=torch.bfloat16, device=device)
    got = activation(gate, torch.ones_like(gate), kind)
    assert torch.equal(got, gate.clamp(min=0))
