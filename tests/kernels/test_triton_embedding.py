"""Rows of an embedding table, to the bit."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels.triton import launching
from halogen_kernels.triton.embedding import embedding


@pytest.mark.parametrize("width", [1, 70, 1024, 5000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8], ids=str)
def test_embedding(dtype: torch.dtype, width: int, device: torch.device) -> None:
    tokens = torch.tensor([0, 36, 5, 5, 17])
    scales = torch.rand(37) if dtype == torch.int8 else None
    table = torch.randint(-127, 128, (37, width)).to(dtype) if scales is not None else torch.randn(37, width).to(dtype)
    expected = table[tokens].float() if scales is None else table[tokens].float() * scales[tokens].unsqueeze(1)
    got = embedding(table.to(device), None if scales is None else scales.to(device), tokens.to(device))
    assert torch.equal(got.cpu(), expected)
    assert launching.last().constexprs["SCALED"] == (scales is not None)


def test_a_token_outside_the_vocabulary_harms_its_own_row_alone(device: torch.device) -> None:
    table = torch.randn(8, 32, device=device)
    got = embedding(table, None, torch.tensor([3, 8, -1, 2], device=device))
    assert torch.equal(got[[0, 3]], table[[3, 2]])
    assert got[1:3].isnan().all()
