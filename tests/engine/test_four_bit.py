"""Codes of four bits: near to the values where it counts, and laid out in tiles as the format says."""

from __future__ import annotations

import pytest
import torch

from halogend.engine.convert.four_bit import Groups, quantise, tiled


def values(groups: Groups) -> torch.Tensor:
    wide = groups.codes.float() * groups.scales.float()[..., None] + groups.minima.float()[..., None]
    return wide.flatten(1)


def whole_range(rows: torch.Tensor) -> torch.Tensor:
    """With codes over the whole range of each group, as they are without a fit."""
    wide = rows.view(len(rows), -1, 32)
    lowest, high = wide.amin(2, keepdim=True), wide.amax(2, keepdim=True)
    low, scale = lowest.half().float(), ((high - lowest) / 15).half().float()
    return (((wide - low) / scale).round().clamp(0, 15) * scale + low).flatten(1)


def test_a_fit_is_nearer_than_the_whole_range() -> None:
    rows = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    fitted, plain = (
        (found - rows).square().view(64, 8, 32).sum(2) for found in (values(quantise(rows)), whole_range(rows))
    )
    assert (fitted <= plain * (1 + 1e-5)).all()
    assert fitted.sum() < 0.93 * plain.sum()


def test_columns_that_count_more_are_nearer() -> None:
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(64, 256, generator=generator)
    importance = torch.rand(256, generator=generator) ** 4 + 1e-4
    weighted, even = (
        ((values(found) - rows).square() * importance).sum() for found in (quantise(rows, importance), quantise(rows))
    )
    assert weighted < 0.9 * even


def test_what_lies_on_sixteen_levels_stays_there() -> None:
    levels = torch.randint(0, 16, (8, 64), generator=torch.Generator().manual_seed(3)).float()
    levels[:, 0::32], levels[:, 1::32] = 0, 15
    rows = levels * 0.25 - 1.5
    assert torch.equal(values(quantise(rows)), rows)


def test_equal_values_have_scale_zero_or_their_own() -> None:
    rows = torch.full((2, 32), 0.375)
    assert torch.equal(values(quantise(rows)), rows)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e6])
def test_what_float16_does_not_have_is_refused(bad: float) -> None:
    rows = torch.zeros(1, 32)
    rows[0, 7] = bad
    with pytest.raises(ValueError, match="finite and within float16"):
        quantise(rows)


def test_tiles_hold_each_column_where_the_format_says() -> None:
    rows = torch.randn(7, 96, generator=torch.Generator().manual_seed(4))
    groups = quantise(rows)
    codes, scales, minima = tiled(groups, 4)
    assert codes.shape == (2, 3, 16, 4)
    for row, column in ((0, 0), (3, 95), (5, 40), (6, 17)):
        tile, group, place = row // 4, column // 32, column % 32
        byte = int(codes[tile, group, place % 16, row % 4])
        code = byte & 15 if place < 16 else byte >> 4
        assert code == groups.codes[row, group, place]
        assert scales[tile, group, row % 4] == groups.scales[row, group]
        assert minima[tile, group, row % 4] == groups.minima[row, group]
    assert not codes[1, :, :, 3].any()
    assert not scales[1, :, 3].any()
    assert not minima[1, :, 3].any()
