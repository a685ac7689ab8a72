"""Where each layout has its planes, byte by byte."""

from __future__ import annotations

import pytest

from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.v2.layout import BYTES, LAYOUTS, ROW, ROW_FP8, ROW_INT8, TILED_INT4, planes, planes_bytes

U8, I8, F8, F16, F32 = PlainType.U8, PlainType.I8, PlainType.F8_E4M3, PlainType.F16, PlainType.F32


def test_numbers_lie_row_by_row():
    (values,) = planes(ROW, PlainType.BF16, (5, 7), 1)
    assert (values.name, values.dtype, values.shape, values.offset) == ("values", PlainType.BF16, (5, 7), 0)
    assert values.nbytes == 70
    assert planes(ROW, F32, (9,), 1)[0].nbytes == 36


@pytest.mark.parametrize(("layout", "dtype"), [(ROW_INT8, I8), (ROW_FP8, F8)])
def test_scales_of_rows_follow_codes_at_a_multiple_of_64(layout: str, dtype: PlainType):
    codes, scales = planes(layout, dtype, (5, 7), 1)
    assert (codes.shape, codes.dtype, codes.nbytes) == ((5, 7), dtype, 35)
    assert (scales.shape, scales.dtype, scales.offset, scales.nbytes) == ((5,), F32, 64, 20)
    assert planes_bytes((codes, scales)) == 84


def test_tiles_have_codes_scales_and_minima_and_the_last_one_is_padded():
    codes, scales, minima = planes(TILED_INT4, U8, (70, 96), 32)
    assert (codes.shape, codes.dtype, codes.nbytes) == ((3, 3, 16, 32), U8, 4608)
    assert (scales.shape, scales.dtype, scales.offset) == ((3, 3, 32), F16, 4608)
    assert (minima.shape, minima.offset, minima.nbytes) == ((3, 3, 32), 4608 + 576, 576)


def test_a_block_may_be_any_number_of_rows():
    codes, scales, _ = planes(TILED_INT4, U8, (70, 32), 48)
    assert codes.shape == (2, 1, 16, 48)
    assert scales.shape == (2, 1, 48)


@pytest.mark.parametrize(
    ("layout", "dtype", "shape", "block", "words"),
    [
        ("row.v2", F32, (2, 2), 1, "unknown layout"),
        (ROW, I8, (2, 2), 1, "dtype I8; layout row takes BF16, F16, F32"),
        (ROW, F32, (2, 2), 32, "blocks of 32"),
        (ROW, F32, (2, 0), 1, "dimension of 0"),
        (ROW_INT8, I8, (4,), 1, "1 dimensions"),
        (TILED_INT4, U8, (4, 48), 32, "48 columns"),
        (TILED_INT4, U8, (4, 64), 0, "blocks of 0"),
        (TILED_INT4, U8, (4, 64), 4097, "blocks of 4097"),
        (BYTES, U8, (4, 4), 1, "2 dimensions"),
    ],
)
def test_what_no_layout_holds_is_refused(layout: str, dtype: PlainType, shape: tuple[int, ...], block: int, words: str):
    with pytest.raises(ValueError, match=words):
        planes(layout, dtype, shape, block)


def test_every_layout_is_under_its_id():
    assert [each.id for each in LAYOUTS.values()] == list(LAYOUTS)
