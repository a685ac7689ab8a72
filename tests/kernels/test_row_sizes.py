"""With how many rows packed products run, over every length that a step may have."""

from __future__ import annotations

import pytest
import torch
from halogen_kernels import select
from halogen_kernels.cpu import linear
from halogen_kernels.cpu.row_sizes import padded_rows, row_sizes

SMALL, LARGE = (8, 8), (257, 128)  # columns, rows of a matrix


def lengths_seen(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """What is added to as products run."""
    seen: set[int] = set()
    product = linear._product

    def counted(x: torch.Tensor, part: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        seen.add(len(x))
        return product(x, part, bias)

    monkeypatch.setattr(linear, "_product", counted)
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("shape", "sizes"), [(LARGE, 16 + 4 * 6), (SMALL, 11)])
def test_all_lengths_reach_the_product_in_few_sizes(
    dtype: torch.dtype, shape: tuple[int, int], sizes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are gone through before anybody waits."""
    if not linear.can_pack(dtype):
        pytest.skip("this CPU multiplies without packing, which builds nothing: the test below")
    kernels = select("cpu", dtype, flash_attention=True)
    columns, outputs = shape
    weight = kernels.pack_linear([torch.randn(outputs, columns, dtype=dtype)])
    seen = lengths_seen(monkeypatch)
    x = torch.randn(1024, columns, dtype=dtype)
    for rows in range(1, 1025):
        assert len(kernels.linear(x[:rows], weight)) == rows
    assert len(seen) == sizes
    assert seen <= set(row_sizes(1024))
    assert kernels.built_sizes(1024) == row_sizes(1024)
    seen.clear()
    for rows in kernels.built_sizes(1024):
        kernels.linear(x[:rows], weight)
    assert len(seen) == sizes


def test_without_packing_every_length_is_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "can_pack", lambda dtype: False)
    kernels = select("cpu", torch.bfloat16, flash_attention=True)
    columns, outputs = LARGE
    weight = kernels.pack_linear([torch.randn(outputs, columns).bfloat16()])
    seen = lengths_seen(monkeypatch)
    for rows in (1, 3, 17, 21, 33):
        assert len(kernels.linear(torch.randn(rows, columns).bfloat16(), weight)) == rows
    assert seen == {1, 3, 17, 21, 33}
    assert kernels.built_sizes(1024) == ()


def test_a_size_holds_its_rows_and_at_most_a_fifth_is_padding() -> None:
    for rows in range(1, 5000):
        size = padded_rows(rows, 1 << 16)
        assert size == rows if rows <= 16 else rows <= size and (size - rows) / size < 0.2
        assert padded_rows(size, 1 << 16) == size


def test_a_small_matrix_has_a_size_an_octave() -> None:
    for rows in range(1, 5000):
        size = padded_rows(rows, 1 << 15)
        assert rows <= size < 2 * rows
        assert size.bit_count() == 1
