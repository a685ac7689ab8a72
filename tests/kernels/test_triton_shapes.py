"""Shapes travel to another process and back."""

import pytest
import torch
from halogen_kernels.triton.shapes import ALL, FEW, Shapes, from_text, to_text


@pytest.mark.parametrize("shapes", [ALL, FEW, Shapes((64,), (torch.float16,), ("same",), ("int4",))])
def test_text_and_back(shapes):
    assert from_text(to_text(shapes)) == shapes


def test_names_and_nonsense():
    assert from_text("all") is ALL
    assert from_text("few") is FEW
    for text in ("many", "[]", "{}", '{"dtypes": ["int9"]}', '{"dtypes": [], "widths": []}'):
        with pytest.raises(ValueError, match="neither of all, few nor a list"):
            from_text(text)
