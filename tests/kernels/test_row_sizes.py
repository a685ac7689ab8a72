"""With how many rows packed products run, over every length that a step may have."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import select
from halogen_kernels.cpu import linear
from halogen_kernels.cpu.row_sizes import padded_rows, row_sizes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_lengths_reach_the_product_in_few_sizes(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = select("cpu", dtype, flash_attention=True)
    weight = kernels.pack_linear([torch.randn(8, 8, dtype=dtype)])
    seen: set[int] = set()
    product = linear._product

    def counted(x: torch.Tensor, part: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        seen.add(len(x))
        return product(x, part, bias)

    monkeypatch.setattr(linear, "_product", counted)
    x = torch.randn(1024, 8, dtype=dtype)
    for rows in range(1, 1025):
        assert len(kernels.linear(x[:rows], weight)) == rows
    assert seen == set(row_sizes(1024))
    assert len(seen) == 16 + 4 * 6
    assert kernels.built_sizes(1024) == row_sizes(1024)


def test_a_size_holds_its_rows_and_at_most_a_fifth_is_padding() -> None:
    for rows in range(1, 5000):
        size = padded_rows(rows)
        assert size == rows if rows <= 16 else rows <= size and (size - rows) / size < 0.2
        assert padded_rows(size) == size
