"""bfloat16 in Triton's interpreter: as devices have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from halogen_kernels.triton.interpreting import narrowed, widened
from halogen_kernels.triton.launching import launch


@triton.jit
def twice_rounded(values, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out + at, tl.load(values + at).to(tl.bfloat16))


@triton.jit
def multiplied(left, right, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(out + at, tl.dot(tl.load(left + at), tl.load(right + at)))


def test_what_is_made_narrower_is_rounded_to_the_nearest(device: torch.device) -> None:
    values = torch.cat((torch.randn(1000) * 10.0 ** torch.randint(-40, 38, (1000,)), torch.zeros(24)))
    values[-4:] = torch.tensor([float("inf"), -float("inf"), 3.4e38, -1e-45])
    out = torch.empty(1024, dtype=torch.bfloat16, device=device)
    launch(twice_rounded, (1,), values.to(device), out, COUNT=1024)
    assert torch.equal(out.cpu(), values.bfloat16())


def test_a_product_of_bfloat16_is_one_of_numbers(device: torch.device) -> None:
    left, right = (torch.randn(32, 32, device=device).bfloat16() for _ in range(2))
    out = torch.empty(32, 32, device=device)
    launch(multiplied, (1,), left, right, out, SIZE=32)
    torch.testing.assert_close(out.double(), left.double() @ right.double(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFFFFFFF, 0x7F800001])
def test_a_nan_stays_one(bits: int) -> None:
    value = np.array(bits, dtype=np.uint32).view(np.float32)
    assert np.isnan(widened(narrowed(value)))
