"""Keys and values written into chunks in Triton: what is read back, and that nothing else was touched."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels.triton import launching
from halogen_kernels.triton.write_kv import write_kv
from support.paged import CHUNK_BLOCKS, CHUNKS, T, empty_cache, read_back
from torch import Tensor

SLOTS = [5, 0, 2 * CHUNK_BLOCKS * T, CHUNKS * CHUNK_BLOCKS * T - 1, 40]
CODED = (torch.int8, torch.float8_e4m3fn)


def written(
    kv: Tensor, slots: Tensor, dims: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """What is at the slots then, float64 [n, 2 * G, d], and everything else."""
    kv_heads, head_dim = dims
    cache, chunks, scales = empty_cache(kv_heads, head_dim, dtype, device)
    write_kv(cache, slots.to(device), kv.to(device))
    held = read_back(chunks, scales, head_dim).flatten(0, 1)
    others = torch.ones(len(held), dtype=torch.bool)
    others[slots[slots >= 0]] = False
    return held[slots.clamp(min=0)], held[others]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, *CODED], ids=str)
@pytest.mark.parametrize("dims", [(2, 64), (1, 80), (3, 96), (5, 128), (1, 256)])
def test_what_was_written_is_read_and_nothing_else_changed(
    device: torch.device, dims: tuple[int, int], dtype: torch.dtype
) -> None:
    kv_heads, head_dim = dims
    compute = torch.float16 if dtype == torch.float16 else torch.bfloat16
    kv = torch.randn(len(SLOTS), 2 * kv_heads * head_dim).to(compute)
    kv[0, :head_dim] = 0
    slots = torch.tensor(SLOTS)
    got, others = written(kv, slots, dims, dtype, device)
    assert launching.last().op == "write_kv"
    assert others.isnan().all()
    exact = kv.double().view(got.shape)
    if dtype in CODED:
        largest = exact.abs().amax(-1, keepdim=True)
        # Half a step: of 127 to the largest, or of eight to a power of two and in 448ths below.
        step = largest / 127 if dtype == torch.int8 else (exact.abs() / 8).clamp(min=1e-30) + largest / 448 / 512
        assert ((got - exact).abs() <= 0.501 * step + 1e-12).all()
    else:
        assert torch.equal(got, exact)


def test_rows_between_others_and_rows_without_a_slot(device: torch.device) -> None:
    """Keys and values are a part of what a projection gave; padding has a negative slot."""
    whole = torch.randn(3, 500 * 2).bfloat16().to(device)
    kv = whole[:, 8 : 8 + 2 * 64]
    slots = torch.tensor([18, -1, 3])
    cache, chunks, scales = empty_cache(1, 64, torch.bfloat16, device)
    write_kv(cache, slots.to(device), kv)
    held = read_back(chunks, scales, 64).flatten(0, 1)
    assert torch.equal(held[[18, 3]].flatten(1), kv[[0, 2]].cpu().double())
    assert held[:3].isnan().all()


def test_e4m3_codes_are_those_of_torch(device: torch.device) -> None:
    """Every halfway point between two codes, and what is next to it, under a scale of one."""
    codes = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    halfway = (codes[1:] + codes[:-1]) / 2
    near = torch.cat([halfway.nextafter(halfway + 1), halfway, halfway.nextafter(halfway - 1), codes])
    near = torch.cat([near, -near])
    padded = torch.zeros(-(-len(near) // 63), 64)
    padded[:, 0] = 448.0  # the largest of a head sets its scale
    filled = torch.zeros(padded[:, 1:].numel())
    filled[: len(near)] = near
    padded[:, 1:] = filled.view(-1, 63)
    kv = torch.cat([padded, padded], dim=1)
    cache, chunks, _ = empty_cache(1, 64, torch.float8_e4m3fn, device)
    write_kv(cache, torch.arange(len(kv), device=device), kv.to(device))
    assert chunks[0] is not None
    got = chunks[0].cpu().view(torch.uint8).view(-1, 2, 64)[: len(kv), 0]
    assert torch.equal(got, padded.to(torch.float8_e4m3fn).view(torch.uint8))


@pytest.mark.parametrize("dtype", CODED, ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_does_not_become_a_number(device: torch.device, dtype: torch.dtype, bad: float) -> None:
    kv = torch.ones(1, 2 * 64).bfloat16()
    kv[0, 70] = bad
    got, _ = written(kv, torch.tensor([0]), (1, 64), dtype, device)
    assert got[0, 0].isfinite().all()
    assert not got[0, 1].isfinite().any()
