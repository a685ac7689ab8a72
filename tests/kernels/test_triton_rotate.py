"""Triton's rotary positions against the reference in float64."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import reference
from halogen_kernels.triton import launching
from halogen_kernels.triton.rms_norm import pack_norm
from halogen_kernels.triton.rotate import rotate
from support.closeness import close

HEAD_DIMS = [2, 48, 64, 80, 96, 128, 192, 256]


def random_turns(rows: int, head_dim: int) -> torch.Tensor:
    angles = torch.randn(rows, 1, head_dim // 2, dtype=torch.float64) * 100
    return torch.polar(torch.ones_like(angles), angles)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_rotate(dtype: torch.dtype, normed: bool, head_dim: int, device: torch.device) -> None:
    """Three heads of five, of 90 rows: more than a program takes, and no whole number of programs."""
    turns = random_turns(90, head_dim)
    qkv = torch.randn(90, 5, head_dim).to(device, dtype)
    weight = torch.randn(3, head_dim)
    exact = qkv[:, :3].double().cpu()
    reference.rotate(exact, turns, reference.pack_norm(weight.double(), 1e-6) if normed else None)
    rest = qkv[:, 3:].clone()
    rotate(qkv[:, :3], turns.to(device, torch.complex64), pack_norm(weight, 1e-6, device) if normed else None)
    assert close(qkv[:, :3], exact, dtype, steps=2)
    assert torch.equal(qkv[:, 3:], rest)
    ran = launching.last()
    assert ran.kernel == "rotate_kernel"
    assert (ran.constexprs["NORMED"], ran.constexprs["HEAD_DIM"]) == (normed, head_dim)


def test_one_norm_for_all_heads(device: torch.device) -> None:
    turns, weight = random_turns(3, 64), torch.randn(64)
    heads = torch.randn(3, 2, 64, device=device)
    exact = heads.double().cpu()
    reference.rotate(exact, turns, reference.pack_norm(weight.double(), 1e-6))
    rotate(heads, turns.to(device, torch.complex64), pack_norm(weight, 1e-6, device))
    assert close(heads, exact, torch.float32, steps=2)


def test_heads_that_do_not_lie_behind_each_other_are_refused(device: torch.device) -> None:
    heads = torch.randn(4, 8, 16, device=device)[:, ::2]
    with pytest.raises(ValueError, match="do not lie behind each other"):
        rotate(heads, random_turns(4, 16).to(device, torch.complex64), None)
